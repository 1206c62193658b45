# frozen_string_literal: true

# Apps that break the Rack contract. Every one must end in a correct response or a closed connection: never in a second
# response, a hang, a field made from the app's data, or a dead worker. The server has one worker with one thread, so the
# request after each one checks that this thread survived.

require "support/case"

BROKEN_APP = <<~'RUBY'
  class Pieces
    def initialize(*pieces, &after) = (@pieces, @after = pieces, after)
    def each(&block) = (@pieces.each(&block); @after&.call)
    def close = nil
  end

  class Headers # anything with each
    def initialize(&each) = @each = each
    def each(&block) = @each.call(block)
  end

  class Awkward < StandardError
    def message = raise("no message either")
  end

  def text = { "content-type" => "text/plain" }
  def with(headers) = [200, text.merge(headers), ["ok"]]
  def body(object) = [200, text, object]
  def deep(n) = deep(n + 1) + 1

  CASES = {
    # the whole response
    "nil" => ->(_) { nil }, "a string" => ->(_) { "hello" }, "an integer" => ->(_) { 200 }, "an object" => ->(_) { Object.new },
    "an empty array" => ->(_) { [] }, "two elements" => ->(_) { [200, text] }, "an exception as a value" => ->(_) { RuntimeError.new("x") },
    "a BasicObject" => ->(_) { BasicObject.new }, "a hash" => ->(_) { { status: 200 } },

    # status
    "status nil" => ->(_) { [nil, text, ["x"]] }, "status 0" => ->(_) { [0, text, ["x"]] }, "status abc" => ->(_) { ["abc", text, ["x"]] },
    "status 99" => ->(_) { [99, text, ["x"]] }, "status 100" => ->(_) { [100, {}, []] }, "status 101" => ->(_) { [101, {}, ["x"]] },
    "status 1000" => ->(_) { [1000, text, ["x"]] }, "status -1" => ->(_) { [-1, text, ["x"]] }, "status huge" => ->(_) { [2**70, text, ["x"]] },
    "status with CRLF" => ->(_) { ["200 OK\r\nx-injected: yes", text, ["x"]] }, "status object" => ->(_) { [Object.new, text, ["x"]] },

    # headers
    "headers nil" => ->(_) { [200, nil, ["x"]] }, "headers array" => ->(_) { [200, [["a", "b"]], ["x"]] }, "headers string" => ->(_) { [200, "a: b", ["x"]] },
    "headers integer" => ->(_) { [200, 5, ["x"]] }, "headers each raises" => ->(_) { [200, Headers.new { |_| raise "headers" }, ["x"]] },
    "headers each yields one" => ->(_) { [200, Headers.new { |b| b.call("x-injected") }, ["x"]] },
    "value nil" => ->(_) { with("x-a" => nil) }, "value integer" => ->(_) { with("x-a" => 5) }, "value symbol" => ->(_) { with("x-a" => :b) },
    "value object" => ->(_) { with("x-a" => Object.new) }, "value BasicObject" => ->(_) { with("x-a" => BasicObject.new) },
    "name nil" => ->(_) { with(nil => "b") }, "name symbol" => ->(_) { with(x_a: "b") }, "name integer" => ->(_) { with(5 => "b") },
    "length nil" => ->(_) { with("content-length" => nil) }, "length integer" => ->(_) { with("content-length" => 2) },
    "length word" => ->(_) { with("content-length" => "two") }, "length negative" => ->(_) { with("content-length" => "-2") },
    "length list" => ->(_) { with("content-length" => "2, 2") }, "length twice" => ->(_) { with("content-length" => "2", "Content-Length" => "3") },
    "length huge" => ->(_) { with("content-length" => "9" * 30) }, "length and coding" => ->(_) { with("content-length" => "2", "transfer-encoding" => "chunked") },
    "coding unknown" => ->(_) { with("transfer-encoding" => "gzip") }, "coding claimed" => ->(_) { with("transfer-encoding" => "chunked") },

    # injection
    "value with CRLF" => ->(_) { with("x-a" => "b\r\nx-injected: yes") }, "value with CR" => ->(_) { with("x-a" => "b\rx-injected: yes") },
    "value with two CRLFs" => ->(_) { with("x-a" => "b\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") },
    "value with NUL" => ->(_) { with("x-a" => "b\0c") }, "value with a control byte" => ->(_) { with("x-a" => "b\x01c") },
    "name with CRLF" => ->(_) { with("x-a: b\r\nx-injected" => "yes") }, "name with LF" => ->(_) { with("x-a: b\nx-injected" => "yes") },
    "name with blank" => ->(_) { with("x a" => "b") }, "name with colon" => ->(_) { with("x:a" => "b") }, "name empty" => ->(_) { with("" => "b") },
    "name with NUL" => ->(_) { with("x\0a" => "b") }, "name with umlaut" => ->(_) { with("x-\u00e4" => "b") },
    "cookie with CRLF" => ->(_) { with("set-cookie" => "a=b\r\nx-injected: yes") },
    "location with CRLF" => ->(_) { [302, { "location" => "/\r\nx-injected: yes" }, []] },
    "array with CRLF" => ->(_) { with("x-a" => ["b", "c\r\nx-injected: yes"]) },

    # size
    "header of 1 MB" => ->(_) { with("x-a" => "b" * 1_000_000) }, "headers of 1 MB" => ->(_) { with((1..10_000).to_h { |i| ["x-#{i}", "b" * 100] }) },
    "name of 1 MB" => ->(_) { with("x" * 1_000_000 => "b") }, "header without end" => ->(_) { [200, Headers.new { |b| loop { b.call("x-a", "b" * 100) } }, ["x"]] },

    # wrong lengths
    "length too short" => ->(_) { [200, text.merge("content-length" => "5"), ["0123456789"]] },
    "length too short, streamed" => ->(_) { [200, text.merge("content-length" => "5"), Pieces.new("012", "345", "6789")] },
    "length too long" => ->(_) { [200, text.merge("content-length" => "50"), ["0123456789"]] },
    "length too long, streamed" => ->(_) { [200, text.merge("content-length" => "50"), Pieces.new("01234", "56789")] },
    "length without body" => ->(_) { [200, text.merge("content-length" => "50"), []] },
    "length 0 with body" => ->(_) { [200, text.merge("content-length" => "0"), ["HTTP/1.1 200 OK\r\n\r\n"]] },

    # bodies
    "body nil" => ->(_) { body(nil) }, "body string" => ->(_) { body("hello") }, "body integer" => ->(_) { body(5) }, "body object" => ->(_) { body(Object.new) },
    "body of nil" => ->(_) { body([nil]) }, "body of integers" => ->(_) { body([1, 2]) }, "body of symbols" => ->(_) { body([:a]) },
    "body of arrays" => ->(_) { body([["a"]]) }, "body of objects" => ->(_) { body([Object.new]) }, "body yields nil" => ->(_) { body(Pieces.new("a", nil)) },
    "body yields objects" => ->(_) { body(Pieces.new("a", BasicObject.new)) }, "body yields integers" => ->(_) { body(Pieces.new(1, 2)) },
    "to_path missing" => ->(_) { body(Pieces.new("fallback").tap { |b| def b.to_path = "/nonexistent/file" }) },
    "to_path nil" => ->(_) { body(Pieces.new("fallback").tap { |b| def b.to_path = nil }) },
    "to_path directory" => ->(_) { body(Pieces.new("fallback").tap { |b| def b.to_path = "." }) },
    "to_path and length" => ->(_) { [200, text.merge("content-length" => "999999"), Pieces.new("x").tap { |b| def b.to_path = "config.ru" }] },
    "to_ary raises" => ->(_) { body(Pieces.new("x").tap { |b| def b.to_ary = raise("to_ary") }) },
    "to_ary no array" => ->(_) { body(Pieces.new("x").tap { |b| def b.to_ary = 5 }) },
    "close raises" => ->(_) { body(Pieces.new("closed").tap { |b| def b.close = raise("close") }) },
    "close throws" => ->(_) { body(Pieces.new("closed").tap { |b| def b.close = throw(:close) }) },
    "close exits" => ->(_) { body(Pieces.new("closed").tap { |b| def b.close = exit }) },
    "hijack header is no proc" => ->(_) { [200, text.merge("rack.hijack" => "no"), []] },
    "hijack raises" => ->(_) { [200, text.merge("rack.hijack" => ->(io) { raise "hijack" }), []] },

    # exceptions before the body
    "raise" => ->(_) { raise "a secret message" }, "raise Exception" => ->(_) { raise Exception, "x" }, "NoMemoryError" => ->(_) { raise NoMemoryError },
    "NotImplementedError" => ->(_) { raise NotImplementedError }, "deep recursion" => ->(_) { deep(0) }, "throw" => ->(_) { throw :somewhere },
    "exit" => ->(_) { exit }, "exit 3" => ->(_) { exit 3 }, "abort" => ->(_) { abort "abort's message" }, "Interrupt" => ->(_) { raise Interrupt },
    "SignalException" => ->(_) { raise SignalException, "TERM" }, "load error" => ->(_) { require "no/such/file" }, "no message" => ->(_) { raise Awkward },
    "invalid message" => ->(_) { raise "\xFF\xFE\0" }, "message with CRLF" => ->(_) { raise "x\r\nx-injected: yes" }, "class as message" => ->(_) { raise Class.new(StandardError) },
    "kill thread" => ->(_) { Thread.current.kill; sleep }, "thread dies" => ->(_) { Thread.new { Thread.current.report_on_exception = false; raise "x" }; with({}) },

    # exceptions in the body
    "each raises at once" => ->(_) { body(Pieces.new { raise "in each" }) }, "each raises later" => ->(_) { body(Pieces.new("one") { raise "in each" }) },
    "each raises much later" => ->(_) { body(Pieces.new(*Array.new(100) { "x" * 10_000 }) { raise "in each" }) },
    "each throws" => ->(_) { body(Pieces.new("one") { throw :x }) }, "each exits" => ->(_) { body(Pieces.new("one") { exit }) },
    "each kills its thread" => ->(_) { body(Pieces.new("one") { Thread.current.kill }) },
    "each raises with length" => ->(_) { [200, text.merge("content-length" => "6"), Pieces.new("one") { raise "in each" }] },

    # misbehaviour
    "env cleared" => ->(env) { env.clear; with({}) }, "env frozen" => ->(env) { env.freeze; with({}) }, "input closed" => ->(env) { env["rack.input"]&.close rescue nil; with({}) },
    "env keys replaced" => ->(env) { env.each_key { |key| env[key] = nil }; with({}) },
    "standard streams closed" => ->(_) { $stdout.close; $stdin.close; $stdout = File.open(IO::NULL, "w"); with({}) }, "ENV cleared" => ->(_) { ENV.clear; with({}) },
    "fork and exit" => ->(_) { Process.wait(fork { exit }); with({}) }, "fork and exit!" => ->(_) { Process.wait(fork { exit! }); with({}) },
    "system" => ->(_) { system("true"); with({}) }, "at_exit raises" => ->(_) { at_exit { raise "at exit" }; with({}) },
    "trap" => ->(_) { trap("USR2") {}; with({}) }, "timeout" => ->(_) { require "timeout"; Timeout.timeout(0.05) { sleep } },
    "Process.daemon is not" => ->(_) { Dir.chdir("/"); Dir.chdir(__dir__); with({}) }
  }

  run lambda { |env|
    path = env["PATH_INFO"].delete_prefix("/")
    next [200, text, [Process.pid.to_s]] if path == "pid"
    CASES.fetch(path.gsub("%20", " ").gsub("%2C", ",")).call(env)
  }
RUBY

class BrokenAppsTest < Case
  in_turn!

  ERROR = [500, 502].freeze
  FINE = [200].freeze

  # what the app does => accepted statuses: the first is Firebrick's, the others are accepted of other servers; a nested list
  # are statuses that are equally right. :cut allows a response that ends short of its own framing because its head was
  # already sent; :none allows a connection that ends without a response.
  EXPECTED = {
    ERROR => [
      "nil", "a string", "an integer", "an object", "an empty array", "an exception as a value", "a BasicObject", "a hash",
      "status nil", "status 0", "status abc", "status 99", "status 1000", "status -1", "status huge", "status object",
      "headers integer", "headers each raises", "header of 1 MB", "headers of 1 MB", "name of 1 MB", "header without end",
      "raise", "raise Exception", "NoMemoryError", "NotImplementedError", "deep recursion", "throw", "exit", "exit 3", "abort", "Interrupt",
      "SignalException", "load error", "no message", "invalid message", "message with CRLF", "class as message", "timeout"
    ],
    [[*ERROR, *FINE]] => [
      "two elements", "status with CRLF", "headers nil", "headers array", "headers string", "headers each yields one", "value nil", "value integer", "value symbol",
      "value object", "value BasicObject", "name nil", "name symbol", "name integer", "length nil", "length integer", "length word",
      "length negative", "length list", "length twice", "length huge", "length and coding", "coding unknown", "coding claimed",
      "value with CRLF", "value with CR", "value with two CRLFs", "value with NUL", "value with a control byte", "name with CRLF", "name with LF",
      "name with blank", "name with colon", "name empty", "name with NUL", "name with umlaut", "cookie with CRLF", "array with CRLF",
      "body nil", "body string", "body integer", "body object", "body of nil", "body of integers", "body of symbols", "body of arrays",
      "body of objects", "body yields nil", "body yields objects", "body yields integers", "to_path missing", "to_path nil", "to_path directory",
      "to_path and length", "to_ary raises", "to_ary no array", "hijack header is no proc", "hijack raises",
      "length too short", "length too short, streamed", "length too long", "length too long, streamed", "length without body", "length 0 with body",
      "each raises at once", "each raises later", "each raises much later", "each throws", "each exits", "each kills its thread", "each raises with length",
      "kill thread"
    ],
    [500, 502, 302] => ["location with CRLF"],
    [502, 500, 101] => ["status 100", "status 101"],
    FINE => [
      "close raises", "close throws", "close exits", "thread dies", "env cleared", "env frozen", "input closed", "env keys replaced",
      "standard streams closed", "ENV cleared", "fork and exit", "fork and exit!", "system", "at_exit raises", "trap", "Process.daemon is not"
    ]
  }.flat_map { |statuses, names| names.map { |name| [name, statuses] } }.to_h.freeze

  # Responses that may be cut off, because the fault shows only after the head was sent.
  CUT = /\A(length|each|body|coding|to_path|hijack|headers each|kill thread|status 101)/

  shared_server threads: "1:1", app: BROKEN_APP

  EXPECTED.each do |name, statuses|
    it "survives: #{name}" do
      before = worker
      connection = connect
      connection.write(request("GET", "/#{name.gsub(' ', '%20').gsub(',', '%2C')}"))
      response = outcome(connection, name)
      check(response, statuses, name) if response
      finish(connection, response)
      after = worker
      assert_equal before, after, "the worker was replaced"
    end
  end

  it "survives the same apps with HTTP/1.0 and HEAD, without a second response" do
    ["length too short", "length too long", "each raises later", "nil", "raise", "close raises", "body of nil"].each do |name|
      path = "/#{name.gsub(' ', '%20').gsub(',', '%2C')}"
      [["GET #{path} HTTP/1.0\r\n\r\n", "GET"], [request("HEAD", path), "HEAD"]].each do |bytes, method|
        connection = connect
        connection.write(bytes)
        response = begin
          connection.read_response(method)
        rescue TruncatedResponse
          nil
        end
        finish(connection, response)
      end
    end
  end

  it "never completes a body that is shorter than its Content-Length" do
    connection = connect
    connection.write(request("GET", "/length%20too%20long%2C%20streamed") + request("GET", "/pid"))
    begin
      response = connection.read_response
      assert_operator response.body.bytesize, :<, 50, "a complete response can only be an error, or have another length"
    rescue TruncatedResponse
      assert connection.ended?
    end
  end

  it "does not end a broken chunked body as if it were complete" do
    connection = connect
    connection.write(request("GET", "/each%20raises%20much%20later"))
    begin
      assert_includes ERROR, connection.read_response.status
    rescue TruncatedResponse
      assert connection.ended?
    end
  end

  it "never sends more than the declared length" do
    ["length%20too%20short", "length%20too%20short%2C%20streamed"].each do |path|
      connection = connect
      connection.write(request("GET", "/#{path}"))
      response = begin
        connection.read_response
      rescue TruncatedResponse
        next
      end
      assert_equal "0123456789"[0, response.body.bytesize], response.body if response.status == 200
      assert connection.silent? || connection.ended?
      assert_equal "", connection.buffered
    end
  end

  it "does not wait for a file body that is a pipe without a writer" do
    own = start(threads: "1:1", app: <<~'RUBY')
      File.mkfifo("pipe.log")
      body = Object.new
      def body.each = yield("fallback")
      def body.to_path = "pipe.log"
      run ->(env) { [200, { "content-type" => "text/plain" }, env["PATH_INFO"] == "/pipe" ? body : ["fine"]] }
    RUBY
    get("/pipe", to: own)
    assert_equal "fine", get("/", to: own).body
  end

  it "does not show the error to clients in production" do
    response = get("/raise")
    assert_status 500, response
    refute_includes response.body, "secret"
    refute_includes response.body, "config.ru"
    wait_until("the log to say it") { server.stderr.include?("a secret message") && server.stderr.include?("config.ru") }
  end

  it "shows the escaped message and backtrace in development" do
    own = start(app: 'run ->(_) { raise "<b>what happened</b>" }', environment: "development")
    response = get("/", to: own)
    assert_status 500, response
    assert_match(/what happened/, response.body)
    assert_match(/config\.ru:1/, response.body)
    refute_includes response.body, "<b>what happened</b>" if response["content-type"].to_s.include?("html")
  end

  it "responds with 502 when the app exits its process, and starts a new worker" do
    own = start(app: BROKEN_APP.sub("CASES = {", "CASES = { \"exit!\" => ->(_) { exit! 7 }, \"segfault\" => ->(_) { Process.kill(:SEGV, Process.pid); sleep },"), threads: "1:1")
    ["/exit!", "/segfault"].each do |path|
      before = get("/pid", to: own).body
      response = get(path, to: own)
      assert_status 502, response unless Server.puma?
      after = get("/pid", to: own)
      assert_status 200, after
      refute_equal before, after.body
    rescue TruncatedResponse
      raise unless Server.puma?
    end
    return if Server.puma?

    wait_until("the log to say what killed it") { own.stderr.include?("/exit!") && own.stderr.match?(/\b7\b/) && own.stderr.match?(/signal|SIG/) }
  end

  private

  def worker
    response = get("/pid")
    assert_status 200, response
    response.body
  end

  # The response; nil when the connection ended before a complete response, where that is allowed.
  def outcome(connection, name)
    connection.read_response
  rescue TruncatedResponse => e
    assert_match CUT, name, "a response was expected: #{e.message}"
    assert connection.ended?
    nil
  end

  def check(response, statuses, name)
    assert_status accepted(*statuses), response, name
    assert_empty response.all("x-injected"), "the app's data was sent as a field"
    assert_empty response.headers.map(&:first).grep(/[^!-~]|rack/)
  end

  # After the response: the connection ends, or serves exactly one more request.
  def finish(connection, response)
    return assert(connection.ended?) if response.nil?
    return assert_closed(connection) if response.framing == :close || response.connection.include?("close")

    connection.write(request("GET", "/pid"))
    later = begin
      connection.read_response
    rescue TruncatedResponse
      assert_equal "", connection.buffered, "a second response"
      return
    end
    assert_match(/\A\d+\z/, later.body, "a second response")
  end
end
