# frozen_string_literal: true

# Handlers written for H2O: every method in H2O's documentation, used as shown there.

require "support/case"
require "support/backend"

class MrubyH2OTest < Case
  parallel!

  OK = 'Proc.new { |env| [200, {"content-type" => "text/plain"}, ["behind"]] }'

  def setup
    mruby_only
  end

  # A server whose handlers run in this order.
  def handlers(*codes, files: {}, toml: "", **options)
    names = codes.each_index.map { |number| "h#{number}.rb" }
    sources = names.zip(codes).to_h
    start(files: sources.merge(files), settings: "#{toml}\n[routes]\n\"/\" = #{names.inspect}\n", workers: nil, threads: nil, **options)
  end

  # The body of a response from a handler with this code.
  def body_of(code, path = "/", **options)
    response = get(path, to: handlers("proc {|env|\n#{code}\n}"), **options)
    assert_status 200, response
    response.body
  end

  # The status of a response, and the given fields; :body for its body.
  def summary(response, *what)
    [response.status, *what.map { |name| name == :body ? response.body : response[name] }]
  end

  def access_log
    "[log]\naccess = \"access.log\"\nformat = \"json\"\n"
  end

  # The access log line of a response with this status, once it is written.
  def logged(own, status)
    wait_until("a line of #{status} in the access log") do
      lines = File.exist?(own.path("access.log")) ? File.readlines(own.path("access.log")) : []
      lines.map { |line| JSON.parse(line) }.find { |line| line["status"] == status }
    end
  end

  it "sends the env as JSON" do
    own = handlers("Proc.new do |env| env['rtt'] = env['h2o.get_rtt'].call; env['ech'] = env['h2o.is_ech'].call; [200, {}, [JSON.generate(env)]] end")
    env = get("/abc%20d?def", to: own, headers: { "User-Agent" => "me", "Cookie" => "a=b" }).json
    expected = { "REQUEST_METHOD" => "GET", "SCRIPT_NAME" => "", "PATH_INFO" => "/abc%20d", "QUERY_STRING" => "def", "SERVER_PROTOCOL" => "HTTP/1.1",
                 "SERVER_ADDR" => "127.0.0.1", "HTTP_HOST" => "example.test", "HTTP_USER_AGENT" => "me", "REMOTE_ADDR" => "127.0.0.1", "rack.url_scheme" => "http",
                 "rack.multithread" => false, "rack.multiprocess" => true, "rack.run_once" => false, "rack.hijack?" => false,
                 "h2o.remaining_delegations" => 5, "h2o.remaining_reprocesses" => 5, "rtt" => nil, "ech" => false }
    assert_equal expected, env.slice(*expected.keys)
    assert_match(/\A\d+\z/, env["REMOTE_PORT"])
    refute env.key?("rack.input"), "there is no body"
    refute env.key?("rack.version")
  end

  it "restricts access by address" do
    code = <<~'RUBY'
      lambda do |env|
        if /\A192\.168\./.match(env["REMOTE_ADDR"])
          return [399, {}, []]
        end
        [403, {'content-type' => 'text/plain'}, ["access forbidden\n"]]
      end
    RUBY
    assert_status 403, get("/", to: handlers(code, OK))
    assert_equal "behind", get("/", to: handlers(code.sub('192\.168\.', '127\.'), OK)).body
  end

  it "adds fields to the responses of others" do
    code = <<~'RUBY'
      Proc.new do |env|
        headers = {}
        if /\.(css|js)\z/.match(env["PATH_INFO"])
          headers["cache-control"] = "max-age=86400"
        end
        push_paths = []
        if /(\/|\.html)\z/.match(env["PATH_INFO"])
          push_paths << ["/css/style.css", "style"]
          push_paths << ["/js/app.js", "script"]
          headers["link"] = push_paths.map{|p| "<#{p[0]}>; rel=preload; as=#{p[1]}"}.join("\n")
        end
        [399, headers, []]
      end
    RUBY
    own = handlers(code, OK)
    assert_equal "max-age=86400", get("/a.css", to: own)["cache-control"]
    assert_equal ["</css/style.css>; rel=preload; as=style", "</js/app.js>; rel=preload; as=script"], get("/", to: own).all("link")
    refute get("/a.png", to: own)["cache-control"]
  end

  it "delegates to another path of the server" do
    code = <<~'RUBY'
      lambda do |env|
        if /\/user\/([^\/]+)/.match(env["PATH_INFO"])
          return [307, {"x-reproxy-url" => "/user.php?user=#{$1}"}, []]
        end
        return [399, {}, []]
      end
    RUBY
    behind = 'lambda { |env| [200, {}, [env["REQUEST_METHOD"], " ", env["PATH_INFO"], "?", env["QUERY_STRING"], " ", env["rack.input"] ? env["rack.input"].read : ""]] }'
    own = handlers(code, behind)
    assert_equal "GET /user.php?user=ann ", get("/user/ann", to: own).body
    assert_equal "POST /user.php?user=ann data", post("/user/ann", "data", to: own).body
    seen = handlers(code.sub("307", "200"), behind)
    assert_equal "GET /user.php?user=ann ", post("/user/ann", "data", to: seen).body
  end

  it "delegates to the requested host" do
    code = <<~'RUBY'
      Proc.new do |env|
        [307, {"x-reproxy-url" => "http://#{env["HTTP_HOST"]}/dest#{env["PATH_INFO"]}"}, ["should never see this"]]
      end
    RUBY
    dest = <<~'RUBY'
      Proc.new do |env|
        [200, {}, ["#{env["SCRIPT_NAME"]}#{env["PATH_INFO"]};#{env["CONTENT_LENGTH"]}"]]
      end
    RUBY
    own = start(files: { "h.rb" => code, "d.rb" => dest }, settings: "[routes]\n\"/\" = \"h.rb\"\n\"/dest\" = \"d.rb\"\n", workers: nil, threads: nil)
    assert_equal "/dest/hoge;", get("/hoge", to: own).body
    assert_equal "/dest/hoge;5", post("/hoge", "hello", to: own).body
  end

  it "sets variables for the log and for later handlers" do
    code = <<~'RUBY'
      Proc.new do |env|
        input = env["rack.input"] ? env["rack.input"].read : '{"default": "true"}'
        parsed_json = JSON.parse(input)
        parsed_json["time"] = 1
        logdata = parsed_json.to_s
        [204, {"x-fallthru-set-POSTDATA" => logdata}, []]
      end
    RUBY
    own = handlers(code, toml: access_log)
    response = post("/", '{"a": 1}', to: own)
    assert_status 204, response
    refute response["x-fallthru-set-postdata"]
    refute response["content-length"]
    assert_equal '{"a"=>1, "time"=>1}', logged(own, 204)["env"]["POSTDATA"].gsub(" => ", "=>")
  end

  it "has rack.input" do
    code = <<~'RUBY'
      proc {|env|
        input = env["rack.input"]
        parts = [input.gets, input.read(2), input.read]
        input.rewind
        input.each {|line| parts << line }
        input.rewind
        [200, {}, [parts.inspect, env["CONTENT_LENGTH"], env["CONTENT_TYPE"]]]
      }
    RUBY
    response = post("/", "one\ntwo\nend", to: handlers(code), headers: { "Content-Type" => "text/x" })
    assert_equal '["one\n", "tw", "o\nend", "one\n", "two\n", "end"]11text/x', response.body
  end

  it "has rack.errors, and logs exceptions" do
    own = handlers("proc {|env| env['rack.errors'].write('said so'); env['rack.errors'].puts('and so'); raise 'hoge' }")
    assert_status 500, get("/", to: own)
    ["said so", "and so", "hoge (RuntimeError)", "h0.rb:1"].each { |text| assert_logged text, on: own }
  end

  it "sends early hints" do
    own = handlers(<<~'RUBY')
      proc {|env|
        env['rack.early_hints'].call({ 'link' => "</index.js>; rel=preload\n</style.css>; rel=preload" })
        sleep 0.05
        env['rack.early_hints'].call({ :foo => 'bar' })
        [200, {}, ['hello']]
      }
    RUBY
    response = get("/", to: own)
    assert_equal "hello", response.body
    assert_equal [["</index.js>; rel=preload", "</style.css>; rel=preload"], ["bar"]], [response.interim[0].all("link"), response.interim[1].all("foo")]
  end

  it "sleeps, also at load time" do
    own = handlers("ret = sleep(0.1)\nproc {|env| [200, {}, [ret, ' ', sleep(0.1), ' ', sleep('0.01')]] }")
    assert_equal "0 0 0", get("/", to: own).body
    message = body_of("begin; sleep(Object.new); rescue => e; [200, {}, [e.message]]; end")
    assert_includes message, "time interval"
  end

  it "sends bodies that respond to each, and closes them" do
    code = <<~'RUBY'
      is_open = false
      lambda do |env|
        return [500, {}, ["close not called"]] if is_open
        is_open = true
        [200, {}, Class.new do
          def each
            yield "hello"
            sleep 0.01
            yield " you"
          end
          define_method(:close) do
            is_open = false
          end
        end.new]
      end
    RUBY
    own = handlers(code, args: ["--front-threads", "1"])
    2.times { assert_equal "hello you", get("/", to: own).body }
  end

  it "accepts pairs, lists and lines as headers" do
    own = handlers('proc {|env| [200, [["content-type", "text/plain"], ["a", ["1", "2"]], ["b", "3\n4"], ["c", 5]], nil] }')
    response = get("/", to: own)
    assert_equal ["text/plain", %w[1 2], %w[3 4], "5"], [response["content-type"], response.all("a"), response.all("b"), response["c"]]
  end

  it "joins repeated fields" do
    own = handlers('proc {|env| [200, {}, [env["HTTP_COOKIE"], "|", env["HTTP_X_A"]]] }')
    bytes = "GET / HTTP/1.1\r\nHost: a\r\nCookie: a=b\r\nX-A: 1\r\nCookie: c=d\r\nx-a: 2\r\n\r\n"
    assert_equal "a=b; c=d|1, 2", ask(bytes, to: own).body
  end

  it "runs tasks concurrently, and communicates through channels" do
    { "ch = H2O::Channel.new\nch.push 1\n[200, {}, [ch.shift]]" => "1",
      "ch = H2O::Channel.new\nres = nil\ntask { res = ch.shift }\nch.push 'value'\n[200, {}, [res]]" => "value",
      <<~'RUBY' => "1234567", <<~'RUBY2' => "1475263", <<~'RUBY3' => "from a constructor" }.each { |code, expected| assert_equal expected, body_of(code), code }
        ch = H2O::Channel.new
        task {
          ch.push '1'
          task {
            ch.push '2'
            ch.push '3'
          }
          ch.push '4'
          task {
            ch.push '5'
            ch.push '6'
          }
          ch.push '7'
        }
        res = ''
        7.times { res << ch.shift }
        [200, {}, [res]]
      RUBY
        ch = H2O::Channel.new
        task {
          ch.push '1'
          task { sleep 0.2; ch.push '2'; sleep 0.2; ch.push '3' }
          ch.push '4'
          task { sleep 0.1; ch.push '5'; sleep 0.2; ch.push '6' }
          ch.push '7'
        }
        res = ''
        7.times { res << ch.shift }
        [200, {}, [res]]
      RUBY2
        Klass ||= Class.new do
          def initialize(ch)
            task { ch.push [200, {}, ["from a constructor"]] }
          end
        end
        ch = H2O::Channel.new
        Klass.new(ch)
        ch.shift
      RUBY3
  end

  it "has the conditions and verbs of acl" do
    code = <<~'RUBY'
      malicious_ip = "192.0.2.66"
      acl {
        allow { addr == "192.0.2.1" }
        deny { user_agent.match(/curl/i) && ! addr.start_with?("192.168.") }
        respond(503, {"retry-after" => "1"}, ["Service Unavailable"]) { addr == malicious_ip }
        redirect("https://example.com/", 301) { path =~ /moved/ }
        redirect("/found") { path == "/lost" }
        use Htpasswd.new("people", "realm") { path.start_with?("/admin") }
        deny { method == "DELETE" || header("X-Token") == "bad" || addr(false) != "127.0.0.1" }
      }
    RUBY
    own = handlers(code, OK, files: { "people" => "ann:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=\n" })
    from = ->(address, more = {}) { { headers: { "X-Forwarded-For" => address }.merge(more) } }
    assert_equal "behind", get("/moved", to: own, **from.call("192.0.2.1", "User-Agent" => "curl/8")).body
    assert_equal [403, "Forbidden"], summary(get("/", to: own, **from.call("192.0.2.2", "User-Agent" => "curl/8")), :body)
    assert_equal "behind", get("/", to: own, headers: { "User-Agent" => "other" }).body
    assert_equal [503, "1", "Service Unavailable"], summary(get("/", to: own, **from.call("192.0.2.66")), "retry-after", :body)
    assert_equal [301, "https://example.com/"], summary(get("/a/moved/b", to: own), "location")
    assert_equal [302, "/found"], summary(get("/lost", to: own), "location")
    ["/admin", "/%61dmin/x", "/y/../admin", "//admin"].each { |path| assert_status 401, get(path, to: own), path }
    ann = { headers: { "Authorization" => "Basic #{['ann:password'].pack('m0')}" } }
    assert_equal "behind", get("/admin", to: own, **ann).body
    assert_status 404, get("/admin/%2ehtpasswd", to: own, **ann)
    assert_status 403, ask(request("DELETE", "/"), to: own)
    assert_status 403, get("/", to: own, headers: { "X-Token" => "bad" })
  end

  it "provides H2O's files where its handlers require them" do
    code = <<~'RUBY'
      require "trie_addr.rb"
      require "htpasswd.rb"
      require "dos_detector.rb"
      require 'prometheus.rb'
      require "share/h2o/mruby/lru_cache.rb"
      require "#{$H2O_ROOT}/share/h2o/mruby/acl.rb"
      trie = TrieAddr.new.add(["192.168.0.0/16", "127.0.0.0/12"])
      acl {
        allow { trie.match?(addr) }
        deny
      }
    RUBY
    own = handlers(code, OK)
    assert_equal "behind", get("/", to: own).body
    assert_status 403, get("/", to: own, headers: { "X-Forwarded-For" => "192.0.2.1" })
  end

  # A backend server.
  def with_backend
    behind = Backend.new do |conn, req|
      conn.read_body(req)
      case req.target
      when "/index.txt" then conn.respond("hello\n")
      when "/headers" then conn.respond(JSON.generate(req.headers))
      when "/echo" then conn.respond(req.body)
      when "/none" then conn.write("HTTP/1.1 204 No Content\r\n\r\n")
      when "/stream" then conn.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-Two: a\r\nX-Two: b\r\n\r\n#{chunked(*('1'..'9'))}")
      when "/esi" then conn.respond('Hello <esi:include src="index.txt" />, from <esi:include src="missing" />!')
      else conn.respond("not found", status: "404 Not Found")
      end
    end
    yield behind.origin
  ensure
    behind&.close
  end

  it "sends requests to other servers" do
    with_backend do |origin|
      own = handlers(<<~RUBY, 'Proc.new { |env| [200, {}, ["delegated!"]] }')
        cached = http_request("#{origin}/index.txt").join
        cached[2] = [cached[2].join]
        class ESIResponse
          def initialize(input)
            @parts = input.split /(<esi:include +src=".*?" *\\/>)/
            @parts.each_with_index do |part, index|
              if /^<esi:include +src=" *(.*?) *"/.match(part)
                @parts[index] = http_request("#{origin}/\#{$1}")
              end
            end
          end
          def each(&block)
            @parts.each do |part|
              if part.kind_of? String
                block.call(part)
              else
                part.join[2].each(&block)
              end
            end
          end
        end
        Proc.new do |env|
          case env["PATH_INFO"]
          when "/cached" then cached
          when "/joined" then [200, {}, [http_request("#{origin}/index.txt").join[2].join]]
          when "/begun" then http_request("#{origin}/index.txt")
          when "/head" then http_request("#{origin}/index.txt", { :method => 'HEAD' }).join
          when "/proxy/none"
            resp = http_request("#{origin}/none").join
            resp[2] = [resp[2].join]
            resp
          when "/twice"
            resp = http_request("#{origin}/index.txt").join
            resp[2].join
            begin; resp[2].join; rescue => e; [200, {}, [e.message]]; end
          when "/parts"
            parts = []
            http_request("#{origin}/stream").join[2].each {|part| parts << part }
            [200, {}, [parts.join]]
          when "/two" then [200, {}, [http_request("#{origin}/stream").join[1]["x-two"].inspect]]
          when "/esi"
            resp = http_request("#{origin}/esi").join
            resp[1].delete("content-length")
            resp[2] = ESIResponse.new(resp[2].join)
            resp
          when "/delegate"
            resp = http_request("#{origin}/missing").join
            resp[0] == 200 ? resp : [399, {}, []]
          when "/refused"
            status, headers, body = http_request("http://127.0.0.1:1/").join
            [200, {}, [status.to_s, " ", headers["client-warning"] == body.join]]
          when "/invalid"
            begin; http_request("nonsense"); rescue ArgumentError => e; [200, {}, [e.message]]; end
          else
            headers = {}
            env.each do |key, value|
              if /^HTTP_/.match(key)
                headers[$'] = value
              end
            end
            headers["x-h2o-mruby"] = "1"
            http_request("#{origin}\#{env["PATH_INFO"].sub("/proxy", "")}", {
              method: env["REQUEST_METHOD"],
              headers: headers,
              body: env["rack.input"],
            }).join
          end
        end
      RUBY
      { "/cached" => "hello\n", "/joined" => "hello\n", "/begun" => "hello\n", "/twice" => "http response body is already consumed", "/parts" => "123456789",
        "/two" => '"a\nb"', "/esi" => "Hello hello\n, from not found!", "/delegate" => "delegated!", "/refused" => "500 true", "/proxy/index.txt" => "hello\n",
        "/proxy/stream" => "123456789" }.each { |path, expected| assert_equal expected, get(path, to: own).body, path }
      assert_includes get("/invalid", to: own).body, "nonsense"
      assert_equal [204, ""], summary(get("/proxy/none", to: own), :body)
      assert_status 200, get("/head", to: own)
      assert_equal "hello world", post("/proxy/echo", "hello world", to: own).body
      fields = get("/proxy/headers", to: own, headers: { "Accept" => "*/*" }).json.to_h.transform_keys(&:downcase)
      assert_equal [origin.delete_prefix("http://"), "*/*", "1"], fields.values_at("host", "accept", "x-h2o-mruby")
    end
  end

  MIDDLEWARE = <<~'RUBY'
    KINDS = {
      "/header" => lambda {|env| resp = H2O.next.call(env); resp[1]["foo"] = "FOO"; resp },
      "/stream" => lambda {|env| resp = H2O.next.call(env); resp[1].delete "content-length"; resp },
      "/join" => lambda {|env| resp = H2O.next.call(env); resp[2] = [resp[2].join]; resp },
      "/discard" => lambda {|env| H2O.next.call(env); [200, {}, ["mruby"]] },
      "/begun" => lambda {|env| H2O.next.request(env); [200, {}, ["mruby"]] },
      "/shortcut" => lambda {|env| H2O.next.request(env) },
      "/wrapped" => lambda {|env|
        status, headers, body = H2O.next.call(env)
        [status, headers, Class.new do
          def initialize(body)
            @body = body
          end
          def each
            @body.each {|buf| yield buf }
          end
        end.new(body)]
      },
      "/two" => lambda {|env|
        resp1 = H2O.next.call(env)
        resp2 = H2O.next.call(env)
        [200, {}, [Digest::MD5.hexdigest(resp1[2].join) == Digest::MD5.hexdigest(resp2[2].join)]]
      },
      "/parallel" => lambda {|env|
        reqs = 3.times.map { H2O.next.request(env) }
        [200, {}, reqs.map {|req| req.join[2].join.size.to_s + " " }]
      },
      "/again" => lambda {|env| env["SCRIPT_NAME"] = "/other"; env["NOTE"] = "kept"; H2O.reprocess.call(env) },
      "/moved" => lambda {|env| env["SCRIPT_NAME"] = "/other"; H2O.next.call(env) },
      "/fields" => lambda {|env| env["HTTP_X_FRONT"] = ["1", "2"]; env.delete("HTTP_X_B"); env["bar"] = "BAR"; H2O.next.call(env) },
      "/rest" => lambda {|env| env["rack.input"].read(3); H2O.next.call(env) },
      "/short" => lambda {|env| env["CONTENT_LENGTH"] = "3"; H2O.next.call(env) },
      "/bad-length" => lambda {|env| env["CONTENT_LENGTH"] = "foo"; H2O.next.call(env) },
      "/bad-path" => lambda {|env| env["PATH_INFO"] = "foo"; H2O.next.call(env) },
      "/bad-scheme" => lambda {|env| env["rack.url_scheme"] = ""; H2O.next.call(env) },
      "/bad-method" => lambda {|env| env["REQUEST_METHOD"] = ""; H2O.next.call(env) },
      "/no-query" => lambda {|env| env.delete("QUERY_STRING"); H2O.next.call(env) }
    }
    proc {|env| (KINDS[env["PATH_INFO"]] || KINDS["/header"]).call(env) }
  RUBY

  BEHIND = <<~'RUBY'
    proc {|env|
      input = env["rack.input"]
      said = %w[HTTP_X_FRONT HTTP_X_B bar].map {|name| env[name].to_s }.join("|")
      [200, {"x-said" => said, "content-length" => "11"}, ["behind:", (input ? input.read : "none")[0, 4].ljust(4)]]
    }
  RUBY

  it "works as middleware" do
    other = 'proc {|env| [200, {}, ["other ", env["SCRIPT_NAME"], env["PATH_INFO"], " ", env["NOTE"], " ", env["h2o.remaining_reprocesses"]]] }'
    own = start(files: { "m.rb" => MIDDLEWARE, "b.rb" => BEHIND, "o.rb" => other }, workers: nil, threads: nil,
                settings: "[routes]\n\"/\" = [\"m.rb\", \"b.rb\"]\n\"/other\" = \"o.rb\"\n")
    { "/header" => "behind:none", "/stream" => "behind:none", "/join" => "behind:none", "/discard" => "mruby", "/begun" => "mruby", "/shortcut" => "behind:none",
      "/wrapped" => "behind:none", "/two" => "true", "/parallel" => "11 11 11 ", "/again" => "other /other/again kept 4" }.each do |path, expected|
      assert_equal expected, get(path, to: own).body, path
    end
    assert_equal [200, "FOO", "11"], summary(get("/header", to: own), "foo", "content-length")
    assert_equal "1, 2||BAR", get("/fields", to: own, headers: { "X-B" => "1" })["x-said"]
    assert_equal "behind:defg", post("/rest", "abcdefghi", to: own).body
    assert_equal "behind:abc ", post("/short", "abcdefghi", to: own).body
    assert_equal "behind:abcd", post("/header", "abcdefghi", to: own).body
    %w[/moved /bad-length /bad-path /bad-scheme /bad-method /no-query].each { |path| assert_status 500, post(path, "x", to: own), path }
    ["SCRIPT_NAME", "CONTENT_LENGTH", "PATH_INFO", "rack.url_scheme", "not a method", "QUERY_STRING"].each { |word| assert_logged word, on: own }
  end

  it "truncates bodies to the handler's Content-Length" do
    own = handlers('proc {|env| [200, {"content-length" => env["PATH_INFO"][1..-1]}, ["abc", "def"]] }')
    assert_equal "abcd", get("/4", to: own).body
    assert_equal "abcdef", get("/6", to: own).body
  end
end
