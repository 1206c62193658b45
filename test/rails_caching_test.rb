# frozen_string_literal: true

# A Rails app behind the cache and the compression of the server: expires_in, fresh_when, stale? and cookies do what Rails' guides say.

require "support/case"
require "support/codings"
require "support/rails_app"

class RailsCachingTest < Case
  parallel!

  class << self
    def server
      SharedServers.fetch(self) { Server.new(**shared_options) }
    end

    # One worker, so that the numbers in pages count all of them.
    def shared_options
      RailsApp.options(workers: 1, threads: "1:3", binds: nil, args: ["--cache", "16MiB"])
    end
  end

  def before_setup
    super
    firebrick_only
    rails_only
  end

  def kept(path, headers = {})
    get("/kept/#{path}", headers: headers)
  end

  def made(response)
    Codings.decode(response)[/\d+/].to_i
  end

  it "keeps a page of expires_in for everyone, and its tag for a purge" do
    first = kept("long?tag=gone", "Cookie" => "user=one")
    assert_includes first.body, "for one"
    again = kept("long?tag=gone", "Cookie" => "user=two")
    assert_equal first.body, again.body
    assert_match(/\AFirebrick; hit/, again["cache-status"])
    assert_nil first["surrogate-key"]
    _, err, code = server.command_line("cache", "purge", "--tag", "gone", "--dir", server.dir)
    assert_equal 0, code, err
    assert_operator made(kept("long?tag=gone")), :>, made(first)
  end

  it "asks Rails whether a page of fresh_when and stale? is still right, and Rails answers 304" do
    %w[versioned asked].each do |path|
      first = kept(path)
      # The last bytes of a page can reach the client before the page is kept. It must be asked about at once, so the next request may go to Rails.
      again = wait_until("#{path} to be kept") do
        again = kept(path)
        again["cache-status"].include?("fwd-status=304") ? again : (first = again) && nil
      end
      assert_equal first.body, again.body, path
      assert_status 304, kept(path, "If-None-Match" => first["etag"])
    end
    assert_operator made(kept("asked?version=2")), :>, made(kept("asked"))
  end

  it "keeps no page that sets a cookie, and no page that says nothing" do
    %w[own default].each do |path|
      first, second = %w[one two].map { |user| kept(path, "Cookie" => "user=#{user}") }
      assert_includes first.body, "for one"
      assert_includes second.body, "for two"
    end
  end

  it "compresses what Rails sends; after decoding it is the same page" do
    plain = kept("long?coded")
    %w[gzip zstd br].each do |coding|
      next unless coding == "gzip" || Codings.installed?(coding)

      wait_until("the page in #{coding}") do
        coded = kept("long?coded", "Accept-Encoding" => coding)
        assert_equal plain.body, Codings.decode(coded), coding
        coded["content-encoding"] == coding
      end
    end
    live = kept("default", "Accept-Encoding" => "gzip")
    assert_equal "gzip", live["content-encoding"]
    assert_match(/\AW/, live["etag"])
    assert_includes live.all("vary"), "Accept-Encoding"
  end
end
