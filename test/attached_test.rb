# frozen_string_literal: true

# Firebrick::Server: an app that is an object of this process, or of another Ruby process.

require "net/http"
require "support/case"
require "support/ruby_program"
require "support/web_socket"

ENV.update(RubyProgram.environment)
$LOAD_PATH.unshift(RubyProgram::LIB) unless $LOAD_PATH.include?(RubyProgram::LIB)
require "firebrick/server"

# Servers in the test process.
class AttachedTest < Case
  parallel!

  def before_setup
    super
    @servers = []
  end

  def after_teardown
    @servers.each { |server| server.stop(now: true) }
    super
  end

  def serve(app = nil, **options, &block)
    server = Firebrick::Server.new(app || block, port: 0, **options)
    @servers << server
    server.start
  end

  def fetch(server, path = "/", body: nil)
    Net::HTTP.start(server.address, server.port) do |http|
      body ? http.post(path, body) : http.get(path)
    end
  end

  def to(server)
    Struct.new(:address).new([server.address, server.port])
  end

  def text(body, status: 200)
    [status, { "content-type" => "text/plain" }, [body]]
  end

  it "serves an object of this process" do
    seen = []
    server = serve do |env|
      seen << env["PATH_INFO"]
      text("#{Process.pid} #{env['rack.multiprocess']} #{env['rack.multithread']}")
    end
    assert_match(%r{\Ahttp://127\.0\.0\.1:\d+\z}, server.url)
    assert_equal "#{Process.pid} false true", fetch(server, "/a").body
    assert_equal ["/a"], seen
  end

  it "sends what a body yields on a thread of its own, past the window, and nothing after its end" do
    kept = Queue.new
    late = Queue.new
    body = Class.new do
      define_method(:initialize) { |id| @id = id }
      define_method(:each) do |&write|
        kept << write
        Thread.new { 300.times { write.call(@id * 10_000) } }.join
      end
    end
    servers = Array.new(2) do
      serve(threads: "1:1") do |env|
        Thread.new { kept.pop.call("late") }.tap { |thread| thread.report_on_exception = false }.join unless kept.empty?
        [200, { "content-type" => "text/plain" }, body.new(env["QUERY_STRING"])]
      rescue IOError => e
        late << e
        retry
      end
    end
    %w[a b a b].each_with_index do |id, number|
      assert_equal id * 3_000_000, fetch(servers[number % 2], "/?#{id}").body
    end
    assert_equal [IOError] * 3, Array.new(late.size) { late.pop.class }
  end

  it "refuses what is no app" do
    error = assert_raises(ArgumentError) { Firebrick::Server.new(Object.new) }
    assert_equal "a Rack app responds to call, Object does not", error.message
  end

  it "has several servers with apps of their own at once" do
    servers = %w[a b c].map { |name| serve(->(_) { text(name) }) }
    assert_equal(%w[a b c], servers.map { |server| fetch(server).body })
    servers[1].stop
    assert_equal(%w[a c], servers.values_at(0, 2).map { |server| fetch(server).body })
    assert_raises(Errno::ECONNREFUSED) { Net::HTTP.get(URI(servers[1].url || "http://127.0.0.1:#{servers[1].port || 1}/")) }
  end

  it "starts and stops again and again" do
    server = serve { text("again") }
    5.times do
      assert_equal "again", fetch(server).body
      port = server.port
      server.stop
      refute_predicate server, :running?
      assert_nil server.port
      assert_raises(Errno::ECONNREFUSED) { TCPSocket.new("127.0.0.1", port) }
      server.start
    end
  end

  it "ends its threads and its front when it is stopped" do
    seen = Thread::Queue.new
    server = serve(threads: "3:3") do
      seen << Thread.current
      # Each of the three threads serves one request.
      wait_until { seen.size == 3 }
      text("x")
    end
    Array.new(3) { Thread.new { fetch(server) } }.each(&:join)
    front = server.front_pid
    server.stop
    refute Processes.alive?(front)
    assert_equal [false], Array.new(3) { seen.pop.alive? }.uniq
  end

  it "stops when it has been stopped, and before it was started" do
    server = Firebrick::Server.new(->(_) { text("x") }, port: 0)
    assert_nil server.stop
    server.start
    3.times { assert_nil server.stop }
    assert_nil server.join
  end

  it "finishes the requests that are under way" do
    entered = Thread::Queue.new
    go = Thread::Queue.new
    server = serve do |_|
      entered << true
      go.pop
      text("finished")
    end
    client = Thread.new { fetch(server).body }
    entered.pop
    stopping = Thread.new { server.stop }
    assert_nil stopping.join(0.3), "it waits for the request"
    go << true
    assert_equal "finished", client.value
    assert stopping.join(20)
  end

  it "stops within shutdown_timeout when its front is stopped, and when that has heard of it before" do
    server = serve(shutdown_timeout: "2s") { text("fine") }
    front = server.front_pid
    assert_equal "fine", fetch(server).body
    Process.kill("STOP", front)
    begun = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    stopping = Thread.new { server.stop }
    assert stopping.join(30), "it does not return"
    took = Process.clock_gettime(Process::CLOCK_MONOTONIC) - begun
    # A busy machine is given some time more.
    assert_operator took, :<, 6, "the front is waited for"
    refute server.running?
    refute Processes.alive?(front)
  end

  it "kills the threads of requests that take longer than shutdown_timeout" do
    entered = Thread::Queue.new
    cleaned = Thread::Queue.new
    server = serve(shutdown_timeout: "200ms") do |_|
      entered << true
      sleep
    ensure
      cleaned << true
    end
    client = Thread.new { fetch(server).code rescue "broken" }
    entered.pop
    server.stop
    assert cleaned.pop
    # 500: the thread ended before its connection to the front.
    assert_includes %w[500 502 504 broken], client.value
  end

  it "does not wait for requests when it is stopped now" do
    entered = Thread::Queue.new
    server = serve do |_|
      entered << true
      sleep
    end
    client = Thread.new { fetch(server).code rescue "broken" }
    entered.pop
    server.stop(now: true)
    assert_includes %w[502 broken], client.value
  end

  it "can be stopped by a request of its own" do
    server = nil
    server = serve do |_|
      server.stop
      text("bye")
    end
    assert_equal "bye", fetch(server).body
    assert_nil server.join
  end

  it "can be used by a request of another server" do
    inner = serve { text("inner") }
    outer = serve { text("outer #{fetch(inner).body}") }
    assert_equal "outer inner", fetch(outer).body
  end

  it "can be started by a request" do
    outer = serve do |_|
      inner = Firebrick::Server.new(->(_) { text("started") }, port: 0).start
      text(fetch(inner).body)
    ensure
      inner&.stop
    end
    2.times { assert_equal "started", fetch(outer).body }
  end

  it "runs requests in parallel, in as many threads as it may have" do
    server = serve(threads: "1:8") do |env|
      sleep 0.01
      text(env["QUERY_STRING"])
    end
    responses = Array.new(100) { |number| Thread.new { fetch(server, "/?#{number}").body } }.map(&:value)
    assert_equal (0...100).map(&:to_s), responses
  end

  it "streams, and takes bodies of any size" do
    server = serve do |env|
      body = env["rack.input"]&.read.to_s
      [200, { "content-type" => "application/octet-stream" }, Enumerator.new { |yielder| body.scan(/.{1,65536}/m) { |part| yielder << part } }]
    end
    sent = Random.new(7).bytes(5 << 20)
    assert_equal Digest::SHA256.hexdigest(sent), Digest::SHA256.hexdigest(fetch(server, "/", body: sent).body)
  end

  it "hands connections over" do
    server = serve do |env|
      io = env["rack.hijack"].call
      io.write("HTTP/1.1 200 OK\r\nContent-Length: 8\r\nConnection: close\r\n\r\nhijacked")
      io.close
      [200, {}, []]
    end
    assert_equal "hijacked", get("/", to: to(server)).body
  end

  it "switches to a protocol of Rack 3.1, over HTTP/1.1 and HTTP/2" do
    server = serve(bind: "tcp://127.0.0.1:0?h2c=true") do |env|
      [200, { "rack.protocol" => env["rack.protocol"].last }, ->(io) { io.write("#{env['SERVER_PROTOCOL']} #{io.readpartial(100)}") && io.close }]
    end
    WebSocket::KINDS.first(2).each do |version, kind|
      socket = kind.new(to(server), "/")
      assert_predicate socket, :accepted?, version
      socket.write("hello")
      assert_equal "#{version} hello", socket.read_to_end
      socket.close
    end
  end

  # Returns a backend whose responses never end, and the requests that it has received.
  def endless_backend
    asked = Queue.new
    backend = TCPServer.new("127.0.0.1", 0)
    accepting = Thread.new do
      loop do
        Thread.new(backend.accept) do |client|
          asked << client.gets
          client.write("HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n")
          loop { client.write("x" * 10_000) && sleep(0.002) }
        rescue SystemCallError
          client.close
        end
      end
    end
    yield URI("http://127.0.0.1:#{backend.local_address.ip_port}/"), asked
  ensure
    accepting.kill
    backend.close
  end

  it "asks no other server twice for a client that leaves a stream" do
    endless_backend do |uri, asked|
      raised = Queue.new
      server = serve do |_|
        copy = lambda do |stream|
          Net::HTTP.start(uri.host, uri.port) { |http| http.request(Net::HTTP::Get.new(uri)) { |answer| answer.read_body { |part| stream.write(part) } } }
        rescue Exception => e # rubocop:disable Lint/RescueException
          raised << e.class
          raise
        ensure
          stream.close
        end
        [200, { "content-type" => "text/plain" }, copy]
      end
      client = connect(to(server)).write(request("GET", "/"))
      client.read_some
      client.reset!
      assert_equal Firebrick::ClientGone, Timeout.timeout(60) { raised.pop }
      assert_equal 1, asked.size
    end
  end

  it "shows errors in development, and only there" do
    app = ->(_) { raise "what went wrong" }
    responses = %w[development production].map { |name| fetch(serve(app, environment: name)) }
    assert_equal(%w[500 500], responses.map(&:code))
    assert_includes responses[0].body, "RuntimeError: what went wrong"
    refute_includes responses[1].body, "wrong"
  end

  it "replaces a thread that the app kills" do
    server = serve(threads: "1:1") do |env|
      Thread.current.kill if env["PATH_INFO"] == "/kill"
      text("alive")
    end
    3.times do
      assert_equal "500", fetch(server, "/kill").code
      assert_equal "alive", fetch(server).body
    end
  end

  it "leaves every request to the app unless a configuration is named" do
    Dir.mktmpdir do |dir|
      FileUtils.mkdir_p("#{dir}/public")
      File.write("#{dir}/public/x.txt", "the file")
      File.write("#{dir}/static.json", '{"headers": {"/**": {"X-Rules": "yes"}}}')
      File.write("#{dir}/firebrick.toml", "[limits]\nmax_body = 10\n[files]\npublic = \"always\"\n")
      app = ->(_) { text("the app") }
      bare = serve(app, dir: dir)
      assert_equal ["the app", "200"], [fetch(bare, "/x.txt").body, fetch(bare, "/", body: "x" * 20).code]
      configured = serve(app, dir: dir, config: true, control: "off")
      assert_equal ["the file", "413"], [fetch(configured, "/x.txt").body, fetch(configured, "/", body: "x" * 20).code]
      assert_equal "yes", fetch(configured, "/x.txt")["x-rules"]
    end
  end

  it "takes every flag of the program as an option" do
    server = serve(max_body: "10", keep_alive_timeout: "1s", early_hints: false) { |env| text(env.key?("rack.early_hints").to_s) }
    assert_equal "413", fetch(server, "/", body: "x" * 20).code
    assert_equal "false", fetch(server).body
  end

  it "listens on a Unix socket, which is removed" do
    Dir.mktmpdir do |dir|
      server = Firebrick::Server.new(->(_) { text("unix") }, bind: "unix://#{dir}/s.sock").start
      @servers << server
      assert_equal ["unix://#{dir}/s.sock"], server.addresses
      assert_nil server.port
      socket = UNIXSocket.new("#{dir}/s.sock")
      socket.write("GET / HTTP/1.0\r\n\r\n")
      assert_includes socket.read, "unix"
      server.stop
      refute_path_exists "#{dir}/s.sock"
    end
  end

  it "says that an address is in use with the system's error" do
    taken = TCPServer.new("127.0.0.1", 0)
    server = Firebrick::Server.new(->(_) { text("x") }, port: taken.addr[1])
    error = assert_raises(Errno::EADDRINUSE) { server.start }
    assert_match(/cannot listen on tcp:.*#{taken.addr[1]}.*choose another address/, error.message)
    taken.close
    @servers << server.start
    assert_equal "x", fetch(server).body
  end

  it "says which setting is wrong" do
    error = assert_raises(Firebrick::Error) { Firebrick::Server.new(->(_) {}, threads: "5:2", port: 0).start }
    assert_match(/threads.*5:2/, error.message)
    error = assert_raises(Firebrick::Error) { Firebrick::Server.new(->(_) {}, max_bodyy: 1, port: 0).start }
    assert_match(/--max-bodyy.*--max-body'/m, error.message)
  end

  it "runs in a thread that is not the main one, until it is stopped" do
    server = Firebrick::Server.new(->(_) { text("x") }, port: 0)
    @servers << server
    running = Thread::Queue.new
    thread = Thread.new { server.run { |yielded| running << yielded } }
    assert_same server, running.pop
    assert_equal "x", fetch(server).body
    server.stop
    assert thread.join(10)
  end

  it "notices that its front was killed, and can be started again" do
    server = serve { text("x") }
    _, err = capture_io do
      Process.kill("KILL", server.front_pid)
      error = assert_raises(Firebrick::Error) { server.join }
      assert_match(/its front \(pid \d+\) has ended by signal 9/, error.message)
    end
    assert_match(/its front/, err)
    refute_predicate server, :running?
    server.start
    assert_equal "x", fetch(server).body
  end

  it "refuses to reload, and says what to do" do
    Dir.mktmpdir do |dir|
      server = serve(->(_) { text("x") }, control: "#{dir}/control.sock")
      out, status = Open3.capture2e(Server.binary, "reload", dir, "--control", "#{dir}/control.sock")
      refute_predicate status, :success?
      assert_match(/restart that process/, out)
      assert_equal "x", fetch(server).body
    end
  end
end

# Servers in other processes, which end in various ways.
class AttachedProgramTest < Case
  parallel!

  def program(source, **options)
    @program = RubyProgram.new("$stdout.sync = true\nrequire 'firebrick/server'\nHELLO = ->(_) { [200, { 'content-type' => 'text/plain' }, ['hello']] }\n#{source}", **options)
  end

  def after_teardown
    @program&.finish&.each { |problem| failures << Minitest::Assertion.new(problem).tap { |error| error.set_backtrace([name]) } }
    super
  end

  def fetch(path = "/")
    Net::HTTP.get(URI("http://127.0.0.1:#{@program.port}#{path}"))
  end

  RUN = "Firebrick::Server.new(HELLO, port: 0, quiet: false, environment: ENV['MODE'], config: true).run; puts 'after run'"

  %w[INT TERM].each do |signal|
    it "ends at once by #{signal} in development, though a request is under way" do
      program(RUN.sub("HELLO", "->(_) { puts 'entered'; sleep }"), env: { "MODE" => "development" })
      socket = TCPSocket.new("127.0.0.1", @program.port)
      socket.write("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
      @program.wait_for("entered")
      @program.signal(signal)
      assert_equal 0, @program.wait_exit
      assert_includes @program.output, "after run"
    end

    it "finishes requests by #{signal} in production" do
      program(RUN.sub("HELLO", "->(env) { puts 'entered'; sleep 0.5; HELLO.call(env) }"), env: { "MODE" => "production" })
      client = Thread.new { fetch }
      @program.wait_for("entered")
      @program.signal(signal)
      assert_equal "hello", client.value
      assert_equal 0, @program.wait_exit
    end
  end

  it "can be stopped in a trap" do
    program("server = Firebrick::Server.new(HELLO, port: 0, quiet: false).start; trap('USR1') { server.stop; puts 'stopped' }; sleep 0.1 while server.running?; puts 'over'")
    assert_equal "hello", fetch
    @program.signal("USR1")
    assert_equal 0, @program.wait_exit
    assert_match(/stopped\s+over/, @program.output)
  end

  it "leaves nothing behind when Ruby exits, with a server that serves" do
    program("Firebrick::Server.new(HELLO, port: 0, quiet: false, config: true).start; sleep 0.1 until File.exist?('go')")
    assert_equal "hello", fetch
    @program.write("go", "")
    assert_equal 0, @program.wait_exit
    assert wait_until(within: 10) { Processes.in_directory(@program.base).empty? }
  end

  it "leaves nothing behind when Ruby is killed" do
    program(RUN)
    assert_equal "hello", fetch
    @program.signal("KILL")
    assert_equal(-9, @program.wait_exit)
    assert wait_until(within: 10) { Processes.in_directory(@program.base).empty? && @program.left.empty? }
  end

  it "says that its front was killed, removes what that has left, and fails" do
    program(RUN)
    assert_equal "hello", fetch
    Process.kill("KILL", @program.fronts.first.pid)
    assert_equal 1, @program.wait_exit
    assert_match(/its front \(pid \d+\) has ended by signal 9/, @program.output)
    refute_includes @program.output, "after run"
    assert_empty @program.left
  end

  it "ends when its front is told to" do
    program(RUN)
    assert_equal "hello", fetch
    Process.kill("TERM", @program.fronts.first.pid)
    assert_equal 0, @program.wait_exit
    assert_includes @program.output, "after run"
  end

  it "is not held up by processes that the app has forked" do
    program(<<~'RUBY')
      child = nil
      app = lambda do |env|
        child = fork { sleep } if env["PATH_INFO"] == "/fork"
        HELLO.call(env)
      end
      server = Firebrick::Server.new(app, port: 0, quiet: false).start
      sleep 0.05 until child
      front = server.front_pid
      server.stop
      puts "stopped #{(Process.kill(0, front) rescue 'and gone')}"
      Process.kill("KILL", child)
    RUBY
    assert_equal "hello", fetch("/fork")
    assert_equal 0, @program.wait_exit
    assert_includes @program.output, "stopped and gone"
  end

  it "can be started in a forked process beside the parent's" do
    program(<<~'RUBY')
      require "net/http"
      parent = Firebrick::Server.new(HELLO, port: 0, quiet: false).start
      pid = fork do
        mine = Firebrick::Server.new(->(_) { [200, {}, ["child"]] }, port: 0).start
        puts "child: #{Net::HTTP.get(URI(mine.url))} #{parent.running?}"
        mine.stop
      end
      Process.wait(pid)
      puts "parent: #{Net::HTTP.get(URI(parent.url))} #{$?.exitstatus}"
    RUBY
    @program.wait_exit
    assert_includes @program.output, "child: child false"
    assert_includes @program.output, "parent: hello 0"
  end

  it "prints the banner, with the environment" do
    program(RUN)
    fetch
    assert_match(/^\* Environment: development \(errors are shown, no worker time-out, Ctrl-C ends at once\)/, @program.output)
    assert_match(/^\* 1:3 threads of Ruby, pid #{@program.pid},/, @program.output)
  end

  it "is not ended by a serving thread that ends with an exit" do
    program(RUN.sub("HELLO", "->(env) { env['PATH_INFO'] == '/exit' ? exit : HELLO.call(env) }"))
    fetch("/exit")
    assert_equal "hello", fetch
  end
end
