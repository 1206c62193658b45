# frozen_string_literal: true

# The base of the tests of static sites and proxies. A shared site may also be served by a peer (see peers.rb).

require "support/case"
require "support/site_server"
require "support/peers"
require "support/codings"
require "support/backend"
require "time"

class SiteCase < Case
  SERVER_OPTIONS = %i[app args binds env open_files prepare settings].freeze

  class << self
    # Declares the site that all tests of the class share.
    def shared_site(**options)
      @shared_options = options
    end

    def server
      SharedServers.fetch(self) { (Peers.chosen || SiteServer).new(**shared_options) }
    end
  end

  def before_setup
    super
    @backends = []
  end

  def after_teardown
    super
    @backends.each(&:close)
  end

  # Starts a backend for this test alone.
  def backend(**options, &script)
    Backend.new(**options, &script).tap { |one| @backends << one }
  end

  # Starts a site for this test alone.
  def site(rules = nil, **options)
    own = SiteServer.new(rules: rules, **options)
    @own_servers << own
    own.start
  end

  # Starts a site for this test alone; a peer may serve it.
  def another_site(**options)
    own = (Peers.chosen || SiteServer).new(**options)
    @own_servers << own
    own.start
  end

  def head(path, to: server, headers: {})
    ask(request("HEAD", path, headers), to: to)
  end

  def options(path, to: server)
    ask(request("OPTIONS", path), to: to)
  end

  # Starts a site with files below public_html/; names that begin with / are relative to the site's directory. Rules and files may
  # be given without braces: keywords that are not options of the server are rules, and String keys are files.
  def served(rules = {}, files = {}, **more)
    options, more = more.partition { |name, _| SERVER_OPTIONS.include?(name) }.map(&:to_h)
    named, keys = more.partition { |name, _| name.is_a?(String) }.map(&:to_h)
    site(rules.merge(keys), files: below_root({ "index.html" => "home" }.merge(files, named)), **options)
  end

  def below_root(files)
    files.transform_keys { |name| name.start_with?("/") ? name.delete_prefix("/") : "public_html/#{name}" }
  end

  def assert_page(content, path, on, **options)
    response = get(path, to: on, **options)
    assert_status 200, response, path
    assert_equal content, response.body, path
  end

  def assert_missing(path, on, **options)
    assert_status 404, get(path, to: on, **options), path
  end

  # Skips tests that do not apply to other servers.
  def firebrick_only(reason = "specific to Firebrick")
    skip reason if Server.puma? || Peers.chosen
  end

  def peer?
    !Peers.chosen.nil?
  end

  # Asserts a 3xx with this Location; an absolute one on the request's own host is treated as relative.
  def assert_redirect(location, response, status: 301, message: nil)
    assert_status status, response, message
    assert_equal location, response["location"].sub(%r{\Ahttp://(example\.test|127\.0\.0\.1)(:\d+)?(?=/)}, ""), message
  end

  # Asserts that the response shows neither the file's content nor a hint that it exists.
  def assert_hidden(response, secret, message = nil)
    assert_status accepted([400, 404], 403), response, message
    refute_includes response.body, secret, message
  end
end
