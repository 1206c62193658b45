# frozen_string_literal: true

# X-Accel-Redirect with rules of the [sendfile] table, beside nginx in front of the same app.

require "support/case"
require "support/peers"
require "uri"
require "time"
require_relative "../worker/lib/firebrick/sendfile_rules"

ACCEL_APP = <<~'RUBY'
  require "rack"

  # The path and the fields come from the query: each is NAME=VALUE.
  run lambda { |env|
    fields = Rack::Utils.parse_query(env["QUERY_STRING"])
    status = Integer(fields.delete("status") || 200)
    puts "asked with #{env["REQUEST_METHOD"]}"
    [status, { "content-type" => "text/x-app", "x-own" => "kept" }.merge(fields), ["the app's body"]]
  }
RUBY

# The file that a path refers to.
class SendfileRulesTest < Case
  parallel!

  PARTS = ["a", "b", "..", ".", "", "%2e%2E", "%2f", "%00", "%", "%4", "%4g", "%zz", "ä", "%c3%a4", "a b", "%20", "%25", "%2500", "?", "..a", "%3f", "\0", "\n"].freeze
  PREFIXES = ["/", "/a/", "/a/b/", "/ä/", "/a b/"].freeze

  def rules(*prefixes)
    Firebrick::SendfileRules.new(prefixes.sort_by { |one| -one.bytesize }.map { |one| [one, "/folder#{PREFIXES.index(one)}"] })
  end

  # nginx's decoder, character by character.
  def decoded(text)
    bytes = text.b.chars
    out = +"".b
    while (char = bytes.shift)
      next out << char unless char == "%"

      first = bytes.shift
      next out << first.to_s unless first&.match?(/\h/)

      second = bytes.shift
      out << (first + second).hex.chr if second&.match?(/\h/)
    end
    out
  end

  it "decodes as nginx does, takes the longest prefix, and leaves no way out of the folder" do
    random = Random.new(Minitest.seed)
    5000.times do
      prefixes = PREFIXES.sample(random.rand(1..4), random: random)
      path = "/" + Array.new(random.rand(0..6)) { PARTS.sample(random: random) }.join(random.rand(3).zero? ? "" : "/")
      place = rules(*prefixes).find(path)
      text = decoded(path.b.split("?", 2).first.to_s)
      longest = prefixes.map(&:b).select { |one| text.start_with?(one) }.max_by(&:bytesize)
      next assert_nil(place, path.inspect) unless longest

      segments = [text, path.b.split("?", 2).first].flat_map { |one| one.split("/", -1) }
      next assert_equal(:unsafe, place, path.inspect) if segments.include?("..") || text.include?("\0") || path.split("?", 2).first.include?("\0")

      assert_equal ["/folder#{PREFIXES.index(longest.dup.force_encoding('UTF-8'))}", longest + place.path], [place.folder, text], path.inspect
      assert File.expand_path(File.join(place.folder, place.path)).b.start_with?(place.folder), path.inspect
    end
  end

  it "finds the file of every name, when it is encoded" do
    random = Random.new(Minitest.seed)
    1000.times do
      name = random.bytes(random.rand(1..12)).gsub(%r{[/\0]}n, "x")
      next if [".", ".."].include?(name)

      encoded = name.bytes.map { |byte| format("%%%02x", byte) }.join
      assert_equal ["/folder1", name], rules("/a/", "/").find("/a/#{encoded}?#{name}").to_a
    end
  end
end

class AccelRedirectTest < Case
  parallel!

  LARGE = ("0123456789" * 100_000).freeze
  FILES = { "small.txt" => "a small file", "large.bin" => LARGE, "empty.txt" => "", "my file.txt" => "a blank", "100%.txt" => "per cent", "ä.txt" => "umlaut",
            "a?b.txt" => "question", "%41.txt" => "code", "deep/down/x.txt" => "deep", "..hidden/y.txt" => "hidden" }.freeze
  RULES = { "/protected/" => "files", "/protected/other/" => "elsewhere", "/all/" => "../outside" }.freeze

  class << self
    def shared_options
      files = FILES.transform_keys { |name| "files/#{name}" }
      { app: ACCEL_APP, threads: "1:5", leaves: ["files/link"], files: files.merge("elsewhere/z.txt" => "elsewhere", "secret.txt" => "secret"), settings: settings(RULES) }
    end

    # With TOML's quotes around prefixes.
    def settings(rules)
      "[sendfile]\n#{rules.map { |prefix, folder| "#{prefix.dump} = #{folder.dump}\n" }.join}"
    end

    def server
      SharedServers.fetch(self) { Server.new(**shared_options).tap { |own| links(own) } }
    end

    def links(own)
      File.symlink("../secret.txt", own.path("files/link_out.txt"))
      File.symlink("small.txt", own.path("files/link_in.txt"))
      File.symlink("/etc", own.path("files/link_etc"))
    end
  end

  def setup
    firebrick_only
  end

  def ask_for(path, fields: {}, headers: {}, to: server, method: "GET")
    query = URI.encode_www_form({ "x-accel-redirect" => path }.merge(fields))
    ask(request(method, "/app?#{query}", headers), to: to)
  end

  it "sends the file of the path, with the app's fields and the file's status" do
    { "small.txt" => "a small file", "large.bin" => LARGE, "empty.txt" => "", "deep/down/x.txt" => "deep", "my%20file.txt" => "a blank", "my file.txt" => "a blank",
      "%C3%A4.txt" => "umlaut", "small.txt?query=1" => "a small file", "link_in.txt" => "a small file", "..hidden/y.txt" => "hidden" }.each do |path, expected|
      response = ask_for("/protected/#{path}", fields: { status: 201, "set-cookie" => "a=b", "content-disposition" => "inline" })
      assert_equal [200, expected, expected.bytesize.to_s], [response.status, response.body, response["content-length"]], path
      assert_equal(["text/x-app", "a=b", "inline", "kept", nil], %w[content-type set-cookie content-disposition x-own x-accel-redirect].map { |name| response[name] })
      assert_match(/\A"\h+-\h+"\z/, response["etag"])
      assert response["last-modified"]
    end
  end

  it "takes the longest prefix, and folders outside of the app's" do
    assert_equal "elsewhere", ask_for("/protected/other/z.txt").body
    assert_status 404, ask_for("/protected/other/small.txt")
    FileUtils.mkdir_p(File.join(server.base, "outside"))
    File.write(File.join(server.base, "outside/o.txt"), "outside")
    assert_equal "outside", ask_for("/all/o.txt").body
  ensure
    FileUtils.rm_rf(File.join(server.base, "outside"))
  end

  it "answers ranges and conditions about the file, whatever the app says of its body" do
    own = { "etag" => '"of the app"', "last-modified" => Time.at(0).httpdate, "content-encoding" => "br" }
    whole = ask_for("/protected/large.bin", fields: own)
    assert_nil whole["content-encoding"]
    refute_equal '"of the app"', whole["etag"]
    part = ask_for("/protected/large.bin", fields: own, headers: { "Range" => "bytes=5-14" })
    assert_equal [206, "5678901234", "bytes 5-14/1000000"], [part.status, part.body, part["content-range"]]
    assert_status 206, ask_for("/protected/large.bin", headers: { "Range" => "bytes=5-14", "If-Range" => whole["etag"] })
    assert_status 200, ask_for("/protected/large.bin", headers: { "Range" => "bytes=5-14", "If-Range" => '"other"' })
    assert_status 200, ask_for("/protected/large.bin", fields: { "accept-ranges" => "none" }, headers: { "Range" => "bytes=5-14" })
    assert_status 416, ask_for("/protected/large.bin", headers: { "Range" => "bytes=1000000-" })
    [{ "If-None-Match" => whole["etag"] }, { "If-None-Match" => %("x", W/#{whole['etag']}) }, { "If-Modified-Since" => whole["last-modified"] }].each do |condition|
      unchanged = ask_for("/protected/large.bin", headers: condition)
      assert_equal [304, "", whole["etag"]], [unchanged.status, unchanged.body.to_s, unchanged["etag"]]
    end
    assert_status 200, ask_for("/protected/large.bin", headers: { "If-None-Match" => '"x"', "If-Modified-Since" => whole["last-modified"] })
  end

  it "answers HEAD without a body, and POST as GET" do
    head = ask_for("/protected/small.txt", method: "HEAD")
    assert_equal [200, "12", ""], [head.status, head["content-length"], head.body.to_s]
    assert_equal "a small file", ask_for("/protected/small.txt", method: "POST", headers: { "Content-Length" => "0" }).body
  end

  it "passes on what no rule is for, with the app's body" do
    ["/internal/x", "@name", "http://other.test/protected/small.txt", "protected/small.txt", "/protected", "", "/Protected/small.txt"].each do |path|
      response = ask_for(path, fields: { status: 201, "x-accel-buffering" => "no" })
      assert_equal [201, "the app's body", path, "no"], [response.status, response.body, response["x-accel-redirect"], response["x-accel-buffering"]]
    end
    bare = start(app: ACCEL_APP)
    response = ask_for("/protected/small.txt", to: bare)
    assert_equal ["the app's body", "/protected/small.txt"], [response.body, response["x-accel-redirect"]]
  end

  it "answers 404 for what leads out of the folder or is no file, and logs why" do
    { "../secret.txt" => /leads out of its folder/, "a/../../secret.txt" => /leads out/, "%2e%2e/secret.txt" => /leads out/, "..%2fsecret.txt" => /leads out/,
      "small.txt%00" => /leads out/, "link_out.txt" => /is outside of/, "link_etc/hostname" => /is outside of/, "deep" => /no regular file/, "" => /no regular file/,
      "missing.txt" => /No such file/, "small.txt/" => /no regular file/, ("x" * 300) => /too long/ }.each do |path, said|
      response = ask_for("/protected/#{path}", fields: { "content-disposition" => "attachment", "cache-control" => "max-age=9" })
      assert_equal [404, "404 Not Found\n", nil, nil], [response.status, response.body, response["content-disposition"], response["cache-control"]], path
      assert_logged(/X-Accel-Redirect: "#{Regexp.escape("/protected/#{path}"[0, 60])}.*#{said}/, on: server)
    end
  end

  it "answers 403 for a file that the worker may not read, and logs why" do
    # Root may read every file, so its worker changes its user, once it has loaded all code.
    app = <<~'RUBY'
      run lambda { |env|
        Process::Sys.seteuid(65_534) if env["PATH_INFO"] == "/closed" && Process.euid.zero?
        [200, { "x-accel-redirect" => "/protected#{env["PATH_INFO"]}.txt", "content-disposition" => "attachment" }, ["the app's body"]]
      }
    RUBY
    own = start(app: app, files: { "files/open.txt" => "open", "files/closed.txt" => "closed" }, settings: self.class.settings("/protected/" => "files"))
    File.chmod(0o711, own.base)
    File.chmod(0o000, own.path("files/closed.txt"))
    assert_equal "open", get("/open", to: own).body
    response = get("/closed", to: own)
    assert_equal [403, "403 Forbidden\n", nil], [response.status, response.body, response["content-disposition"]]
    assert_logged(%r{X-Accel-Redirect: "/protected/closed\.txt".*Permission denied}, on: own)
    assert_equal "open", get("/open", to: own).body, "the folder may be read"
  end

  it "adds the charset of X-Accel-Charset, and drops the fields that are for nginx" do
    fields = { "x-accel-charset" => "koi8-r", "x-accel-limit-rate" => "1000", "x-accel-buffering" => "no", "x-accel-expires" => "60" }
    response = ask_for("/protected/small.txt", fields: fields)
    assert_equal "text/x-app; charset=koi8-r", response["content-type"]
    assert_empty(response.headers.map(&:first).grep(/\Ax-accel/i))
    assert_equal "text/x-app", ask_for("/protected/small.txt", fields: { "x-accel-charset" => "off" })["content-type"]
  end

  it "does as nginx does" do
    skip "nginx is not installed" unless File.executable?("/usr/sbin/nginx")
    with_nginx do |nginx|
      paths = FILES.keys + ["my%20file.txt", "100%25.txt", "a%3fb.txt", "a?b.txt", "%2541.txt", "%41.txt", "small%2etxt", "small.txt?x", "small.tx%74", "%zsmall.txt", "s%%6dall.txt", "small.txt%", "small.txt%4",
                            "small.txt%4g", "../secret.txt", "deep/../small.txt", "deep/..", "..", "..%2fsecret.txt", "%2e%2e/secret.txt", ".%2e/secret.txt", "small.txt%00", "./small.txt", "deep//down/x.txt",
                            "deep/./down/x.txt", "missing", "small.txt/", "%5c..%5csmall.txt", "link_in.txt", "%2e%2e%2fsecret.txt", "%252e%252e/secret.txt", "deep/%2e%2e/small.txt", "small.txt#x", "..hidden/y.txt"]
      paths.each do |path|
        both = [nginx, server].map { |one| ask_for("/protected/#{path}", to: one).then { |found| [found.status, found.status == 200 ? found.body : nil] } }
        assert_equal both[0], both[1], "/protected/#{path}"
      end
    end
  end

  it "works where Rails' and Rack's own server would: rackup and Capybara" do
    require "support/ruby_program"
    program = RubyProgram.new(<<~RUBY, files: { "files/small.txt" => "a small file", "firebrick.toml" => self.class.settings("/protected/" => "files") })
      $stdout.sync = true
      require "firebrick/server"
      app = ->(_) { [200, { "x-accel-redirect" => "/protected/small.txt" }, ["the app's"]] }
      server = Firebrick::Server.new(app, port: 0, config: true).start
      require "net/http"
      puts Net::HTTP.get(URI(server.url))
      server.stop
    RUBY
    assert_equal 0, program.wait_exit, program.output
    assert_includes program.output, "a small file"
  ensure
    assert_empty program.finish
  end

  it "is shown by firebrick check, with what is missing" do
    own = Server.new(app: ACCEL_APP, settings: self.class.settings(RULES), files: { "files/x" => "" })
    out, err, code = own.command_line("check")
    assert_equal 0, code, err
    assert_match(%r{sendfile +/protected/other/ in #{own.dir}/elsewhere \(there is no such folder\)$}, out)
    assert_match(%r{sendfile +/protected/ in #{own.dir}/files$}, out)
    File.write(own.path("firebrick.toml"), self.class.settings("/protected" => "files"))
    _, err, code = own.command_line("check")
    refute_equal 0, code
    assert_match(%r{firebrick\.toml:2: sendfile\."/protected" = "files": expected a path that begins and ends with /}, err)
  ensure
    FileUtils.rm_rf(own.base)
  end

  it "takes new rules with a reload" do
    own = start(app: ACCEL_APP, files: { "files/small.txt" => "small", "new/small.txt" => "new" }, settings: "[reload]\nwatch = 0\n#{self.class.settings('/protected/' => 'files')}")
    assert_equal "small", ask_for("/protected/small.txt", to: own).body
    File.write(own.path("firebrick.toml"), "[reload]\nwatch = 0\n#{self.class.settings('/protected/' => 'new')}")
    out, err, code = own.command_line("reload", own.dir)
    assert_equal 0, code, "#{out}#{err}"
    assert_equal "new", ask_for("/protected/small.txt", to: own).body
  end

  private

  # nginx in front of a server of the same app without rules.
  def with_nginx
    app = start(app: ACCEL_APP)
    folder = server.path("files")
    peer = Class.new(Peers::Nginx) do
      define_method(:configuration) do
        <<~CONF
          user root; worker_processes 1; pid #{@base}/nginx.pid; error_log #{@base}/error.log;
          events { }
          http {
            #{temporary_folders} access_log off;
            server {
              listen 127.0.0.1:#{@port};
              location / { proxy_pass http://127.0.0.1:#{app.port}; }
              location /protected/ { internal; alias #{folder}/; }
            }
          }
        CONF
      end
    end
    nginx = peer.new
    yield nginx.start
  ensure
    nginx&.finish
  end
end
