# frozen_string_literal: true

# The Rack SPEC (2.2 or 3, whichever the app loads), with and without Rack::Lint between server and app.

require "support/case"

# The environment and the responses of an app. Included twice: with Rack::Lint around the app, and without.
module RackSpecTests
  APP = <<~'RUBY'
    require "json"
    require "rack"

    NOTES = Queue.new # what happened behind the client's back
    def notes = Array.new(NOTES.size) { NOTES.pop }

    # A body that records when it is closed.
    class Noted
      def initialize(name, *pieces) = (@name, @pieces = name, pieces)
      def each = @pieces.each { |piece| yield piece }
      def close = NOTES << "closed #{@name}"
    end

    class Each < Noted
    end

    # A file body: the server may send the file itself, or read it by each.
    class FileBody < Noted
      def initialize(name, path) = (super(name); @path = path)
      def to_path = @path
      def each = File.open(@path, "rb") { |file| yield file.read(1000) until file.eof? }
    end

    class ArrayLike < Noted
      def to_ary = (close; @pieces)
    end

    text = { "content-type" => "text/plain" }
    plain = ->(string) { [200, text.dup, [string]] }
    describe = lambda do |value|
      { "class" => value.class.name, "frozen" => value.frozen?, "encoding" => (value.encoding.to_s if value.is_a?(String)),
        "value" => case value when String then value.b.unpack1("H*") when Integer, true, false, nil then value when Array then value.inspect end }
    end
    input = lambda do |env, &block|
      plain.(JSON.generate(block.(env["rack.input"] || StringIO.new("".b))))
    end

    APP = lambda do |env|
      case env["PATH_INFO"]
      when "/env" then plain.(JSON.generate(env.to_h { |key, value| [key, describe.(value)] }))
      when "/env-is" then plain.([env.class, env.frozen?, env.default.inspect].join(" "))
      when "/change-env"
        before = env.key?("test.mark") || env["REQUEST_METHOD"] != "GET" || env["HTTP_X_A"] != "b"
        env["test.mark"] = 1
        env["REQUEST_METHOD"] = +"PUT"
        env.delete("HTTP_X_A")
        env["PATH_INFO"] << "changed" unless env["PATH_INFO"].frozen?
        plain.(before.to_s)
      when "/notes" then plain.(notes.join("\n"))
      when "/errors" then env["rack.errors"].puts("line to errors"); env["rack.errors"].write("more\n"); env["rack.errors"].flush; plain.("ok")

      when "/input/read" then input.(env) { |io| [io.read.to_s.encoding.to_s, io.read] }
      when "/input/read-all" then input.(env) { |io| io.read.to_s.unpack1("H*") }
      when "/input/read-nil" then input.(env) { |io| [io.read(nil), io.read(nil)] }
      when "/input/read-some" then input.(env) { |io| [io.read(3), io.read(100), io.read(1), io.read(0)] }
      when "/input/read-buffer" then input.(env) { |io| b = +"old"; same = io.read(3, b).equal?(b); [b.dup, same, io.read(100, b).dup, b.dup, io.read(1, b)] }
      when "/input/gets" then input.(env) { |io| [io.gets, io.gets, io.gets, io.gets] }
      when "/input/each" then input.(env) { |io| lines = []; io.each { |line| lines << line }; lines }
      when "/input/rewind" then input.(env) { |io| first = io.read; io.rewind; [first, io.read] }
      when "/input/digest"
        require "digest"
        digest = Digest::SHA256.new
        size = 0
        while (piece = env["rack.input"].read(65_536)); digest << piece; size += piece.bytesize; end
        plain.("#{size} #{digest.hexdigest}")

      when "/body/array" then plain.("one").tap { |r| r[2] << "two" }
      when "/body/each" then [200, text.dup, Each.new("each", "one", "two")]
      when "/body/enumerator" then [200, text.dup, Enumerator.new { |y| y << "one"; y << "two" }]
      when "/body/lazy" then [200, text.dup, Each.new("lazy", *Array.new(500) { |i| "#{i}\n" })]
      when "/body/path" then [200, text.dup, FileBody.new("path", "data.txt")]
      when "/body/path-with-length" then [200, text.merge("content-length" => File.size("data.txt").to_s), FileBody.new("path-with-length", "data.txt")]
      when "/body/file" then [200, text.dup, File.open("data.txt", "rb")]
      when "/body/to_ary" then [200, text.dup, ArrayLike.new("to_ary", "one", "two")]
      when "/body/proxy" then [200, text.dup, Rack::BodyProxy.new(["proxied"]) { NOTES << "closed proxy" }]
      when "/body/binary" then [200, text.dup, [(0..255).map(&:chr).join.b]]
      when "/body/utf8" then [200, text.dup, ["h\u00e9\u20ac"]]
      when "/body/frozen" then [200, text.dup.freeze, ["frozen".freeze].freeze].freeze
      when "/body/raises"
        body = Each.new("raises", "one")
        def body.each = (yield "one"; raise "in the body")
        [200, text.dup, body]
      when "/body/204" then [204, {}, Each.new("204")]
      when "/body/large" then [200, text.dup, Each.new("large", *Array.new(300) { "x" * 10_000 })]
      when "/body/empty-strings" then [200, text.dup, Each.new("empty", "", "a", "", "b", "")]

      when "/headers/cookies-2" then [200, text.merge("set-cookie" => "a=1; path=/\nb=2"), ["ok"]]
      when "/headers/lines-2" then [200, text.merge("x-many" => "one\ntwo"), ["ok"]]
      when "/headers/arrays-3" then [200, text.merge("set-cookie" => ["a=1; path=/", "b=2"], "x-many" => %w[one two]), ["ok"]]
      when "/headers/rack-only" then [200, text.merge("rack.private" => "no"), ["ok"]]
      when "/headers/many" then [200, text.merge((1..100).to_h { |i| ["x-#{i}", "v" * i] }), ["ok"]]
      when "/headers/empty" then [200, text.merge("x-empty" => ""), ["ok"]]
      when "/headers/server" then [200, text.merge("server" => "mine"), ["ok"]]
      when %r{\A/status/(\d+)\z} then [$1.to_i, [204, 304].include?($1.to_i) ? {} : text.dup, [204, 304].include?($1.to_i) ? [] : ["status"]]

      when "/after-reply"
        env["rack.after_reply"] << -> { NOTES << "first" } << -> { raise "in after_reply" } << -> { NOTES << "third" }
        plain.("ok")
      when "/response-finished"
        next plain.("absent") unless env["rack.response_finished"]
        env["rack.response_finished"] << ->(e, s, h, x) { NOTES << "registered first: #{e["PATH_INFO"]} #{s} #{h["content-type"]} #{x.inspect}" }
        env["rack.response_finished"] << ->(*) { NOTES << "registered last" }
        plain.("ok")
      when "/response-finished-error"
        env["rack.response_finished"] << ->(_e, s, _h, x) { NOTES << "#{s.inspect} #{x&.message}" } if env["rack.response_finished"]
        raise "seen by response_finished"
      when "/early-hints"
        env["rack.early_hints"].call("link" => "</a.css>; rel=preload; as=style\n</b.js>; rel=preload; as=script") if Rack.release < "3"
        env["rack.early_hints"].call("link" => ["</a.css>; rel=preload; as=style", "</b.js>; rel=preload; as=script"]) if Rack.release >= "3"
        plain.("hinted")
      when "/hijack/full"
        env["rack.hijack"].call
        io = env["rack.hijack_io"]
        Thread.new { io.write("HTTP/1.1 200 OK\r\nContent-Length: 8\r\nConnection: close\r\n\r\nhijacked"); io.close }
        [200, {}, []]
      when "/hijack/talk"
        io = env["rack.hijack"].call || env["rack.hijack_io"]
        Thread.new do
          io.write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
          while (piece = io.readpartial(1000)); io.write(piece.upcase); end
        rescue EOFError
          NOTES << "talk ended"
        ensure
          io.close
        end
        [200, {}, []]
      when "/hijack/partial"
        [200, text.merge("rack.hijack" => ->(io) { io.write("partial "); io.write("hijack"); io.close }), []]
      when "/hijack/partial-later"
        [200, text.merge("rack.hijack" => ->(io) { Thread.new { sleep 0.1; io.write("later"); io.flush; io.close } }), []]
      when "/hijack/partial-length"
        [200, text.merge("content-length" => "6", "rack.hijack" => ->(io) { io.write("length"); io.close }), []]
      when "/stream" then [200, text.dup, ->(stream) { stream.write("streamed "); stream << "body"; stream.flush; stream.close }]
      when "/stream/echo" then [200, text.dup, ->(stream) { stream.write(stream.read.to_s.upcase); stream.close_write; stream.close }]
      when "/stream/later" then [200, text.dup, ->(stream) { Thread.new { sleep 0.1; stream.write("later"); stream.close } }]
      when "/stream/object"
        body = Object.new
        def body.call(stream) = (stream.write("object"); stream.close)
        def body.close = NOTES << "closed stream"
        [200, text.dup, body]
      else plain.("#{env["REQUEST_METHOD"]} #{env["PATH_INFO"]}")
      end
    end
  RUBY

  FILES = { "data.txt" => (0...5000).map { |i| "line #{i}\n" }.join }.freeze

  def self.included(suite)
    super
    suite.class_eval do
      # --- the environment

      it "gives env as an unfrozen Hash without a default" do
        assert_equal "Hash false nil", get("/env-is").body
      end

      it "gives the request in the keys of the SPEC" do
        env = env_of("POST /env?a=1&b=%20 HTTP/1.1\r\nHost: example.test:8080\r\nContent-Type: text/x\r\nContent-Length: 2\r\n\r\nhi")
        {
          "REQUEST_METHOD" => "POST", "SCRIPT_NAME" => "", "PATH_INFO" => "/env", "QUERY_STRING" => "a=1&b=%20",
          "SERVER_NAME" => "example.test", "SERVER_PORT" => "8080", "SERVER_PROTOCOL" => "HTTP/1.1",
          "HTTP_HOST" => "example.test:8080", "CONTENT_TYPE" => "text/x", "CONTENT_LENGTH" => "2", "rack.url_scheme" => "http",
          "REQUEST_URI" => "/env?a=1&b=%20"
        }.each { |key, value| assert_equal value, env.dig(key, "value")&.then { |hex| [hex].pack("H*") }, key }
        refute_includes env, "HTTP_CONTENT_TYPE"
        refute_includes env, "HTTP_CONTENT_LENGTH"
      end

      it "gives the server and the peer" do
        connection = connect
        connection.write(request("GET", "/env"))
        env = connection.read_response.json
        assert_equal "127.0.0.1", string(env, "REMOTE_ADDR")
        assert_equal connection.local_port.to_s, string(env, "REMOTE_PORT") unless Server.puma?
        assert_match(/firebrick|puma/i, string(env, "SERVER_SOFTWARE"))
        assert_equal "CGI/1.2", string(env, "GATEWAY_INTERFACE") if env.key?("GATEWAY_INTERFACE")
      end

      it "gives the rack.* keys with the right types" do
        env = env_of(request("GET", "/env"))
        if Server.rack_release < "3"
          assert_match(/\A\[1, \d+\]\z/, env.dig("rack.version", "value"))
          assert_equal true, env.dig("rack.multithread", "value"), "five threads"
          assert_equal false, env.dig("rack.run_once", "value")
          assert_includes [true, false], env.dig("rack.multiprocess", "value")
          assert env["rack.input"], "rack.input is required by Rack 2"
        end
        assert env["rack.errors"]
        assert_equal true, env.dig("rack.hijack?", "value")
        assert env["rack.hijack"]
        assert env["rack.after_reply"]
        assert env["rack.response_finished"] unless Server.puma?
      end

      it "gives every CGI key as a String, never frozen where apps append" do
        env = env_of(request("GET", "/env?q", "X-A" => "b"))
        env.reject { |key, _| key.include?(".") }.each { |key, value| assert_equal "String", value["class"], key }
      end

      it "tags non-ASCII values with the right encoding" do
        env = env_of("GET /env HTTP/1.1\r\nHost: x\r\nX-Latin: caf\xE9\r\n\r\n".b)
        assert_equal "caf\xE9".b, string(env, "HTTP_X_LATIN")
        assert_equal "ASCII-8BIT", env.dig("HTTP_X_LATIN", "encoding")
      end

      it "joins repeated fields with a comma, and Cookie with a semicolon" do
        env = env_of("GET /env HTTP/1.1\r\nHost: x\r\nX-A: 1\r\nx-a: 2\r\nX-A: 3\r\nCookie: a=1\r\nCookie: b=2\r\nAccept: x\r\nAccept: y\r\n\r\n")
        assert_match(/\A1, ?2, ?3\z/, string(env, "HTTP_X_A"))
        assert_match(/\Ax, ?y\z/, string(env, "HTTP_ACCEPT"))
        assert_equal "a=1; b=2", string(env, "HTTP_COOKIE") unless Server.puma?
      end

      it "starts each request with an environment of its own" do
        connection = connect
        3.times do
          connection.write(request("GET", "/change-env", "X-A" => "b"))
          assert_equal "false", connection.read_response.body
        end
      end

      it "uses the default port when Host has none" do
        assert_equal "80", string(env_of(request("GET", "/env")), "SERVER_PORT")
        env = env_of("GET /env HTTP/1.1\r\nHost: [::1]:3000\r\n\r\n")
        assert_equal "3000", string(env, "SERVER_PORT")
        assert_match(/\A(\[::1\]|::1)\z/, string(env, "SERVER_NAME"))
      end

      it "gives the protocol of an HTTP/1.0 request, and a server name without Host" do
        env = env_of("GET /env HTTP/1.0\r\n\r\n")
        assert_equal "HTTP/1.0", string(env, "SERVER_PROTOCOL") unless Server.puma?
        refute_empty string(env, "SERVER_NAME")
        refute_includes env, "HTTP_HOST"
      end

      it "writes rack.errors to standard error" do
        assert_equal "ok", get("/errors").body
        wait_until("the lines") { server.stderr.include?("line to errors") && server.stderr.include?("more") }
      end

      # --- rack.input

      it "gives an empty input for a request without a body" do
        assert_equal "", get("/input/read").json.last
        assert_equal [], get("/input/each").json
        assert_equal [nil] * 4, get("/input/gets").json
        assert_equal [nil, nil, nil, ""], get("/input/read-some").json
      end

      it "reads input as binary, empty at the end" do
        assert_equal ["ASCII-8BIT", ""], post("/input/read", "one\ntwo").json
        assert_equal (0..255).map(&:chr).join.b.unpack1("H*"), post("/input/read-all", (0..255).map(&:chr).join.b).json
        assert_equal ["abc", ""], post("/input/read-nil", "abc").json
      end

      it "reads input by length" do
        assert_equal ["one", "\ntwo", nil, ""], post("/input/read-some", "one\ntwo").json
        assert_equal ["one", true, "\ntwo", "\ntwo", nil], post("/input/read-buffer", "one\ntwo").json
      end

      it "reads input by lines" do
        assert_equal ["one\n", "two\n", "three", nil], post("/input/gets", "one\ntwo\nthree").json
        assert_equal %W[one\n two\n three], post("/input/each", "one\ntwo\nthree").json
      end

      it "rewinds input" do
        rack2_only
        assert_equal %w[abc abc], post("/input/rewind", "abc").json
        assert_equal %w[abc abc], ask("POST /input/rewind HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n#{chunked('a', 'bc')}").json
        large = "0123456789" * 20_000
        assert_equal [large, large], post("/input/rewind", large).json
      end

      [1000, 65_535, 65_536, 65_537, 1_000_000, 5_000_000].each do |size|
        it "gives a body of #{size} bytes completely" do
          body = Random.new(size).bytes(size)
          expected = "#{size} #{Digest::SHA256.hexdigest(body)}"
          assert_equal expected, post("/input/digest", body).body
          pieces = (0...size).step(70_001).map { |at| body.byteslice(at, 70_001) }
          coded = "POST /input/digest HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".b + chunked(*pieces)
          assert_equal expected, ask(coded).body
        end
      end

      # --- bodies

      { "array" => "onetwo", "each" => "onetwo", "enumerator" => "onetwo", "to_ary" => "onetwo", "proxy" => "proxied",
        "lazy" => (0...500).map { |i| "#{i}\n" }.join, "binary" => (0..255).map(&:chr).join.b, "utf8" => "h\u00e9\u20ac".b,
        "frozen" => "frozen", "empty-strings" => "ab", "large" => "x" * 3_000_000, "path" => FILES["data.txt"],
        "path-with-length" => FILES["data.txt"], "file" => FILES["data.txt"] }.each do |kind, expected|
        it "sends a body of the kind #{kind}" do
          lint_refuses_frozen if kind == "frozen"
          connection = connect
          connection.write(request("GET", "/body/#{kind}"))
          response = connection.read_response
          assert_status 200, response
          assert_equal expected.b, response.body
          assert_alive connection
        end
      end

      it "sends the Content-Length that the app gave for a file" do
        assert_equal FILES["data.txt"].bytesize.to_s, get("/body/path-with-length")["content-length"]
      end

      %w[each path 204 to_ary proxy large].each do |kind|
        it "closes a body of the kind #{kind} exactly once" do
          assert_closed_once(kind == "204" ? "204" : kind) { get("/body/#{kind}") }
        end
      end

      it "closes a body exactly once after HEAD" do
        assert_closed_once("each") { ask(request("HEAD", "/body/each")) }
        assert_closed_once("path") { ask(request("HEAD", "/body/path")) }
      end

      it "closes a body exactly once even if each raises" do
        assert_closed_once("raises") do
          connection = connect
          connection.write(request("GET", "/body/raises"))
          assert connection.ended?
        end
      end

      # --- status and headers

      [200, 201, 206, 301, 302, 400, 401, 403, 404, 418, 422, 429, 451, 500, 503, 599].each do |status|
        it "sends status #{status} with a reason" do
          response = get("/status/#{status}")
          assert_status status, response
          assert_equal "status", response.body
        end
      end

      it "sends several values of a field as several lines (Rack 2: newlines)" do
        rack2_only
        assert_equal ["a=1; path=/", "b=2"], get("/headers/cookies-2").all("set-cookie")
        assert_equal %w[one two], get("/headers/lines-2").all("x-many")
      end

      it "sends several values of a field as several lines (Rack 3: arrays)" do
        rack3_only
        response = get("/headers/arrays-3")
        assert_equal ["a=1; path=/", "b=2"], response.all("set-cookie")
        assert_equal %w[one two], response.all("x-many")
      end

      it "does not send rack.* headers" do
        assert_empty get("/headers/rack-only").headers.map(&:first).grep(/rack/)
      end

      it "sends many headers, empty ones, and the app's own Server" do
        response = get("/headers/many")
        assert_equal "v" * 100, response["x-100"]
        assert_equal "", get("/headers/empty")["x-empty"]
        assert_equal "mine", get("/headers/server")["server"]
      end

      # --- around the response

      it "calls rack.after_reply after the response, even if one fails" do
        get("/notes")
        skip "Puma stops at a failing callable" if Server.puma?
        assert_equal "ok", get("/after-reply").body
        collected = []
        wait_until("both notes") { collected.concat(get("/notes").body.split("\n")).size >= 2 }
        assert_equal %w[first third], collected
      end

      it "calls rack.response_finished in reverse order, with env, status, headers, error" do
        get("/notes")
        skip "not supported by this server" if get("/response-finished").body == "absent" && Server.puma?
        collected = []
        wait_until("both notes") { collected.concat(get("/notes").body.split("\n")).size >= 2 }
        assert_equal ["registered last", "registered first: /response-finished 200 text/plain nil"], collected
      end

      it "gives rack.response_finished the error of a failed app" do
        firebrick_only
        get("/notes")
        assert_status 500, get("/response-finished-error")
        collected = []
        wait_until("the note") { collected.concat(get("/notes").body.split("\n")).size >= 1 }
        assert_match(/seen by response_finished\z/, collected.first)
      end

      it "sends early hints" do
        skip "off by default" if Server.puma?
        response = get("/early-hints")
        assert_equal "hinted", response.body
        assert_equal [103], response.interim.map(&:status)
        assert_equal ["</a.css>; rel=preload; as=style", "</b.js>; rel=preload; as=script"], response.interim.first.all("link")
      end

      it "does not send early hints to HTTP/1.0 clients" do
        skip "off by default" if Server.puma?
        response = ask("GET /early-hints HTTP/1.0\r\n\r\n")
        assert_equal "hinted", response.body
        assert_empty response.interim
      end

      # --- hijacking and streaming

      it "hands the connection over (full hijack)" do
        connection = connect
        connection.write(request("GET", "/hijack/full"))
        assert_equal "hijacked", connection.read_response.body
        assert_closed connection
      end

      it "allows both directions on a hijacked connection, including bytes sent early" do
        connection = connect
        connection.write(request("GET", "/hijack/talk", "Connection" => "Upgrade", "Upgrade" => "echo") + "early ")
        response = connection.read_response
        assert_status 101, response
        assert_equal "echo", response["upgrade"]
        connection.write("late")
        assert_equal "EARLY LATE", connection.read_exactly(10)
        connection.write("more" * 50_000)
        assert_equal "MORE" * 50_000, connection.read_exactly(200_000)
        connection.close
        wait_until("the app to see the end") { get("/notes").body.include?("talk ended") }
      end

      it "lets the app write the body after the headers (partial hijack)" do
        { "partial" => "partial hijack", "partial-later" => "later", "partial-length" => "length" }.each do |path, expected|
          connection = connect
          connection.write(request("GET", "/hijack/#{path}", "Connection" => "close"))
          response = connection.read_response
          assert_equal expected, response.body
          assert_empty response.headers.map(&:first).grep(/rack/)
          assert_closed connection
        end
      end

      it "does not read another request on a hijacked connection" do
        connection = connect
        connection.write(request("GET", "/hijack/full") + request("GET", "/smuggled"))
        assert_equal "hijacked", connection.read_response.body
        assert_closed connection
      end

      it "gives the app a stream to write to" do
        streaming_only
        assert_equal "streamed body", get("/stream").body
        assert_equal "object", get("/stream/object").body
        assert_equal "later", get("/stream/later").body
      end

      it "lets the stream read the request's body" do
        streaming_only
        assert_equal "HELLO", post("/stream/echo", "hello").body
      end

      it "serves other requests after a streamed one" do
        streaming_only
        connection = connect
        connection.write(request("GET", "/stream"))
        response = connection.read_response
        assert_alive connection unless response.connection.include?("close")
        assert_status 200, get("/")
      end
    end
  end

  def env_of(bytes)
    response = ask(bytes)
    assert_status 200, response
    response.json
  end

  def string(env, key)
    [env.dig(key, "value") || flunk("env has no #{key}")].pack("H*")
  end

  def assert_closed_once(name)
    get("/notes")
    yield
    collected = []
    wait_until("closed #{name}") { collected.concat(get("/notes").body.split("\n")).include?("closed #{name}") }
    sleep 0.05
    collected.concat(get("/notes").body.split("\n"))
    # A body of the test before may be closed after its response has arrived.
    assert_equal 1, collected.count("closed #{name}"), collected.inspect
  end

  def lint_refuses_frozen
    skip "Rack::Lint of Rack 3 refuses a frozen response" if Server.rack_release >= "3" && is_a?(RackSpecWithLintTest)
  end

  def streaming_only
    skip "Puma 5 does not support bodies that respond to call" if Server.puma?
    skip "Rack::Lint of Rack 2 refuses a body that responds to call" if Server.rack_release < "3" && is_a?(RackSpecWithLintTest)
  end
end

class RackSpecTest < Case
  in_turn!

  shared_server threads: "1:5", files: RackSpecTests::FILES, settings: { rack: { early_hints: true } }, app: "#{RackSpecTests::APP}\nrun APP\n"
  include RackSpecTests

  it "sends the Content-Length of an Array body" do
    assert_equal "5", get("/")["content-length"]
  end

  it "sends a String that responds to each, in one piece" do
    own = start(app: <<~'RUBY')
      class OneString < String
        def each = yield(to_s)
      end
      run ->(_) { [200, { "content-type" => "text/plain" }, OneString.new("just a string")] }
    RUBY
    assert_equal "just a string", get("/", to: own).body
  end

  it "trusts X-Forwarded-Proto of trusted proxies only" do
    firebrick_only
    app = 'run ->(env) { [200, { "content-type" => "text/plain" }, [%w[rack.url_scheme SERVER_PORT REMOTE_ADDR HTTPS].map { |k| env[k].to_s }.join(" ")]] }'
    headers = { "X-Forwarded-Proto" => "https" }
    trusting = start(app: app, settings: { rack: { trusted_proxies: ["127.0.0.1"] } })
    assert_match(/\Ahttps /, get("/", to: trusting, headers: headers).body)
    assert_match(/\Ahttp /, get("/", to: trusting).body)
    assert_match(/\Ahttp /, get("/", to: trusting, headers: { "X-Forwarded-Proto" => "gopher" }).body)
    wary = start(app: app, settings: { rack: { trusted_proxies: ["none"] } })
    assert_match(/\Ahttp /, get("/", to: wary, headers: headers).body)
  end

  it "serves an app built with use, map and run" do
    own = start(app: <<~'RUBY')
      use Rack::Head
      map("/mounted") { run ->(env) { [200, { "content-type" => "text/plain" }, ["#{env["SCRIPT_NAME"]}|#{env["PATH_INFO"]}"]] } }
      run ->(_) { [404, { "content-type" => "text/plain" }, ["no"]] }
    RUBY
    assert_equal "/mounted|/x", get("/mounted/x", to: own).body
    assert_status 404, get("/else", to: own)
  end

  it "sets rack.multithread and rack.multiprocess correctly" do
    rack2_only
    skip "requests of fibers run at the same time" if ENV["TEST_FIBERS"]
    app = 'run ->(env) { [200, { "content-type" => "text/plain" }, [[env["rack.multithread"], env["rack.multiprocess"]].join(" ")]] }'
    assert_equal "false true", get("/", to: start(app: app, workers: 2, threads: "1:1")).body
  end
end

class RackSpecWithLintTest < Case
  in_turn!

  shared_server threads: "1:5", files: RackSpecTests::FILES, settings: { rack: { early_hints: true } }, app: <<~RUBY
    #{RackSpecTests::APP}
    skipped = %w[/hijack/full /hijack/talk] # Rack::Lint cannot check a hijacked response
    linted = Rack::Lint.new(APP)
    run ->(env) { (skipped.include?(env["PATH_INFO"]) ? APP : linted).call(env) }
  RUBY
  include RackSpecTests
end
