# frozen_string_literal: true

# Handlers on the built-in mruby: responses, waiting, delegation, failures, and reloading.

require "support/case"

class MrubyHandlersTest < Case
  parallel!

  KINDS = <<~'RUBY'
    class Body
      def initialize(*parts)
        @parts = parts
      end

      def each
        @parts.each { |part| sleep 0.05; yield part }
      end

      def close
        $stderr_line = Rt.call(Rt::LOG, "body closed")
      end
    end

    class Broken < Body
      def each
        yield "begun"
        sleep 0.1
        raise "in the middle"
      end
    end

    KINDS = {
      "/hello" => lambda { |env| [200, { "Content-Type" => "text/plain" }, ["Hello"]] },
      "/sleep" => lambda { |env| slept = sleep(0.3); [200, {}, [slept.class.to_s]] },
      "/parts" => lambda { |env| [200, {}, %w[a b c]] },
      "/stream" => lambda { |env| [200, {}, Body.new("a", "", "b", "c")] },
      "/broken" => lambda { |env| [200, {}, Broken.new] },
      "/empty" => lambda { |env| [200, {}, Body.new] },
      "/pairs" => lambda { |env| [201, [["X-A", "1"], ["X-A", "2"], ["X-B", %w[3 4]]], nil] },
      "/lines" => lambda { |env| [200, { "X-A" => "1\n2" }, []] },
      "/raise" => lambda { |env| raise ArgumentError, "boom" },
      "/nothing" => lambda { |env| nil },
      "/status" => lambda { |env| [99, {}, []] },
      "/inject" => lambda { |env| [200, { "X-A" => "1\r\nX-B: 2" }, []] },
      "/name" => lambda { |env| [200, { "X A" => "1" }, []] },
      "/echo" => lambda { |env| [200, {}, [env["rack.input"] ? env["rack.input"].read : "no body"]] },
      "/env" => lambda { |env| [200, {}, [env.map { |k, v| "#{k}=#{v}" }.join("\n")]] },
      "/tasks" => lambda { |env|
        channel = Channel.new
        one = task { sleep 0.1; channel << "from a task"; 1 }
        two = task { sleep 0.1; raise KeyError, "lost" }
        error = begin; two.join; rescue KeyError => e; e.message; end
        [200, {}, [[channel.shift, one.join, error].inspect]]
      },
      "/hash" => lambda { |env| [200, {}, [Hash.new { |_, _| sleep 1 }[1].to_s]] },
      "/bomb" => lambda { |env| a = []; while true; a << "x" * 10_000; end },
      "/deep" => lambda { |env| def deep; deep; end; deep },
      "/busy" => lambda { |env| while true; "x" * 100; end },
      "/never" => lambda { |env| sleep },
      "/ensure" => lambda { |env| begin; sleep 30; ensure; Rt.call(Rt::LOG, "ensured"); end }
    }
    lambda { |env| (KINDS[env["PATH_INFO"]] || lambda { |_| [404, {}, []] }).call(env) }
  RUBY

  LIMITS = <<~TOML
    [mruby]
    request_heap = "8MiB"
    step_time = "300ms"
    deadline = "1s"
    max_body = "64KiB"
    [routes]
    "/" = "kinds.rb"
  TOML

  shared_server files: { "kinds.rb" => KINDS }, settings: LIMITS, workers: nil, threads: nil

  def setup
    mruby_only
  end

  def handlers(routes, files = {}, **options)
    toml = "[routes]\n#{routes.map { |path, handlers| "#{path.dump} = #{handlers}" }.join("\n")}\n"
    start(files: files, settings: toml, workers: options[:app] ? 1 : nil, threads: options[:app] ? "1:1" : nil, **options)
  end

  # The exit status and the output of a start that must fail.
  def refused(code, *args)
    server = Server.new(files: { "h.rb" => code }, workers: nil, threads: nil)
    out, err, status = server.command_line(*args, "h.rb", "--mruby")
    server.finish
    [out, err, status]
  end

  it "sends what a handler returns" do
    response = get("/hello")
    assert_equal [200, "text/plain", "Hello"], [response.status, response["content-type"], response.body]
    assert_equal "abc", get("/parts").body
    assert_equal 404, get("/none").status
  end

  it "waits without blocking other requests" do
    begun = now
    waiting = Array.new(20) { connect.tap { |one| one.write(request("GET", "/sleep")) } }
    assert_equal "Hello", get("/hello").body
    assert_equal ["Integer"], waiting.map { |one| one.read_response("GET").body }.uniq
    assert_operator now - begun, :<, 20 * 0.3, "they slept one after the other"
  end

  it "streams bodies that respond to each, and closes them" do
    assert_equal "abc", get("/stream").body
    empty = get("/empty")
    assert_equal [200, ""], [empty.status, empty.body]
    wait_until(within: 5) { server.stderr.include?("body closed") }
    assert_logged "body closed", on: server
  end

  it "never completes a broken body" do
    connection = connect
    connection.write(request("GET", "/broken"))
    assert_raises(Minitest::Assertion) { connection.read_response("GET") }
  end

  it "accepts every form of headers that Rack allows" do
    response = get("/pairs")
    assert_equal [201, %w[1 2], %w[3 4]], [response.status, response.all("x-a"), response.all("x-b")]
    assert_equal %w[1 2], get("/lines").all("x-a")
  end

  it "responds with 500 to a handler's mistakes, and logs them" do
    { "/raise" => "boom (ArgumentError)", "/nothing" => "instead of [status, headers, body]", "/status" => "the status 99",
      "/inject" => "control character", "/name" => "X A", "/hash" => "cannot wait here" }.each do |path, reason|
      response = get(path)
      assert_equal 500, response.status, path
      refute_includes response.raw_head, "X-B: 2"
      assert_logged reason, on: server
    end
    assert_logged(/boom \(ArgumentError\) at \S*kinds\.rb:\d+/, on: server)
  end

  it "stops handlers that take too much memory, depth or time, and no others" do
    { "/bomb" => "NoMemoryError", "/deep" => "SystemStackError", "/busy" => "mruby.step_time" }.each do |path, reason|
      assert_equal 500, get(path).status, path
      assert_logged reason, on: server
      assert_equal "Hello", get("/hello").body, "after #{path}"
    end
  end

  it "responds with 504 after the deadline" do
    assert_equal 504, get("/never").status
    assert_logged "mruby.deadline", on: server
  end

  it "runs ensure when the client is gone" do
    own = start(files: { "kinds.rb" => KINDS }, settings: LIMITS, workers: nil, threads: nil)
    connection = connect(own)
    connection.write(request("GET", "/ensure"))
    wait_for_tasks(1, on: own)
    connection.close
    wait_until(within: 5) { own.stderr.include?("ensured") }
    assert_logged "ensured", on: own
  end

  it "passes bodies to handlers, up to max_body" do
    assert_equal "a=b", post("/echo", "a=b").body
    assert_equal "no body", get("/echo").body
    assert_equal 413, post("/echo", "x" * (65 << 10)).status
  end

  it "builds a Rack env" do
    headers = { "X-One" => "1", "Cookie" => "a=b", "Accept" => "text/html" }
    env = get("/env?q=1&r", headers: headers).body.lines(chomp: true).to_h { |line| line.split("=", 2) }
    expected = { "REQUEST_METHOD" => "GET", "SCRIPT_NAME" => "", "PATH_INFO" => "/env", "QUERY_STRING" => "q=1&r",
                 "SERVER_NAME" => "example.test", "SERVER_PORT" => "80", "SERVER_PROTOCOL" => "HTTP/1.1",
                 "HTTP_X_ONE" => "1", "HTTP_COOKIE" => "a=b", "HTTP_HOST" => "example.test", "REMOTE_ADDR" => "127.0.0.1",
                 "rack.url_scheme" => "http" }
    assert_equal expected, env.slice(*expected.keys)
    refute env.key?("rack.input")
  end

  it "joins tasks and communicates through channels" do
    assert_equal '["from a task", 1, "lost"]', get("/tasks").body
  end

  it "chains handlers: 399 leaves the response to the next handler, the site or the app" do
    files = { "first.rb" => 'lambda { |env| env["PATH_INFO"] == "/stop" ? [403, {}, ["stopped"]] : [399, { "x-first" => "1" }, []] }',
              "second.rb" => 'lambda { |env| env["PATH_INFO"] == "/second" ? [200, {}, ["second"]] : [399, {}, []] }' }
    app = 'run lambda { |env| [200, {}, ["app ", env["PATH_INFO"], " ", env["rack.input"].read]] }'
    own = handlers({ "/" => '["first.rb", "second.rb"]' }, files, app: app)
    stopped = get("/stop", to: own)
    assert_equal [403, "stopped"], [stopped.status, stopped.body]
    second = get("/second", to: own)
    assert_equal %w[second 1], [second.body, second["x-first"]]
    assert_equal "app /x body", post("/x", "body", to: own).body
    assert_equal "1", get("/x", to: own)["x-first"]
  end

  it "uses the longest route and passes its mount to the handler" do
    show = 'lambda { |env| [200, {}, ["NAME ", env["SCRIPT_NAME"], "|", env["PATH_INFO"]]] }'
    own = handlers({ "/api" => '"api.rb"', "/api/v2" => '"v2.rb"' },
                   { "api.rb" => show.sub("NAME", "api"), "v2.rb" => show.sub("NAME", "v2") })
    responses = %w[/api /api/x /api/v2/y /api/v22].map { |path| get(path, to: own).body }
    assert_equal ["api /api|", "api /api|/x", "v2 /api/v2|/y", "api /api|/v22"], responses
    statuses = %w[/apis /].map { |path| get(path, to: own).status }
    assert_equal [404, 404], statuses
  end

  it "serves one file with --mruby" do
    own = Server.new(files: { "h.rb" => 'lambda { |env| [200, {}, ["one file"]] }' }, workers: nil, threads: nil)
    out, = own.command_line("check", "h.rb", "--mruby")
    own.finish
    assert_includes out, "The handler loads on mruby"
  end

  it "refuses to start with an invalid handler, and shows where" do
    _, err, status = refused("lambda { |env|\n  [200, {}, []\n}\n", "serve", "-b", "tcp://127.0.0.1:0")
    assert_equal 1, status
    assert_match(/h\.rb:3: syntax error.*\n  \}\n\s+\^/, err)
    _, err, status = refused("\nraise 'no'\n", "serve", "-b", "tcp://127.0.0.1:0")
    assert_equal 1, status
    assert_match(/h\.rb:2: no \(RuntimeError\)\n  raise 'no'/, err)
    _, err, = refused("42", "check")
    assert_includes err, "not callable"
  end

  # Each front thread loads new handlers by itself.
  def becomes(own, text)
    wait_until("#{text} from all threads", within: 5) { Array.new(8) { get("/", to: own).body }.uniq == [text] }
  end

  it "reloads a changed handler, and keeps the old one if the new one is invalid" do
    own = handlers({ "/" => '"h.rb"' }, { "h.rb" => 'lambda { |env| [200, {}, ["old"]] }' })
    assert_equal "old", get("/", to: own).body
    File.write(own.path("h.rb"), "lambda { |env| [200, {}, [")
    wait_until(within: 5) { own.stderr.include?("stay in force") }
    assert_logged "syntax error", on: own
    assert_equal "old", get("/", to: own).body
    File.write(own.path("h.rb"), 'lambda { |env| [200, {}, ["new"]] }')
    becomes(own, "new")
  end

  it "reloads handlers when a file that they require changes" do
    own = handlers({ "/" => '"h.rb"' }, { "h.rb" => "require_relative 'word'\nlambda { |env| [200, {}, [WORD]] }",
                                          "word.rb" => "WORD = 'old'" })
    assert_equal "old", get("/", to: own).body
    # The file is watched from the first check after it was required.
    sleep 0.6
    # As an editor writes: first an empty file, which is valid Ruby.
    File.write(own.path("word.rb"), "")
    File.write(own.path("word.rb"), "WORD = nope")
    wait_until(within: 5) { own.stderr.include?("stay in force") }
    assert_logged(/h\.rb:1: undefined (local variable or )?method .nope/, on: own)
    assert_equal 1, own.stderr.scan("stay in force").size
    assert_equal "old", get("/", to: own).body
    File.write(own.path("word.rb"), "WORD = 'the new one'")
    becomes(own, "the new one")
  end

  it "logs file and route of a handler that fails" do
    own = handlers({ "/a/b" => '["ok.rb", "boom.rb"]' },
                   { "ok.rb" => "lambda { |env| [399, {}, []] }", "boom.rb" => "lambda { |env| raise 'boom' }" })
    assert_equal 500, get("/a/b/c", to: own).status
    assert_logged(%r{500 for GET /a/b/c: \S*boom\.rb \(route /a/b\): mruby raised: boom \(RuntimeError\) at \S*boom\.rb:1}, on: own)
  end

  it "follows x-reproxy-url within the server, and elsewhere only if allowed" do
    files = { "to.rb" => 'lambda { |env| [200, { "x-reproxy-url" => env["QUERY_STRING"] }, []] }',
              "here.rb" => 'lambda { |env| [200, {}, ["here ", env["HTTP_HOST"]]] }' }
    other = handlers({ "/" => '"here.rb"' }, files)
    own = handlers({ "/here" => '"here.rb"', "/to" => '"to.rb"', "/may" => '{ mruby = "to.rb", reproxy = true }' }, files)
    elsewhere = "http://127.0.0.1:#{other.port}/"
    assert_equal "here example.test", get("/to?/here", to: own).body
    assert_equal 502, get("/to?#{elsewhere}", to: own).status
    assert_logged "reproxy = true", on: own
    assert_equal "here 127.0.0.1:#{other.port}", get("/may?#{elsewhere}", to: own).body
  end

  it "accepts numbers and Symbols as header values, and leaves out nil" do
    own = handlers({ "/" => '"h.rb"' },
                   { "h.rb" => 'lambda { |env| [200, { "Content-Length" => 2, "x-a" => :b, "x-c" => nil }, ["ab"]] }' })
    response = get("/", to: own)
    assert_equal ["2", "b", nil, "ab"], [response["content-length"], response["x-a"], response["x-c"], response.body]
  end

  it "waits at load time, and serves requests afterwards" do
    own = handlers({ "/" => '"h.rb"' }, { "h.rb" => "sleep 0.3\nlambda { |env| [200, {}, ['loaded']] }" })
    assert_equal "loaded", get("/", to: own).body
  end
end
