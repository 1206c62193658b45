# frozen_string_literal: true

# Redis from mruby handlers: the example, a restart of Redis, clients that disconnect while Redis is busy, and limits that two
# servers count together. Commands, promises and restarts under load are asked in handlers/script/tests/it/redis.

require "support/case"
require "support/certificates"

class MrubyRedisTest < Case
  include Certificates

  parallel!

  EXAMPLE = File.expand_path("../examples/mruby-json-redis/handler.rb", __dir__)

  KINDS = <<~'RUBY'
    class Events
      def initialize(redis, channel)
        @redis = redis
        @channel = channel
      end

      def each
        @redis.subscribe(@channel) { |on| on.message { |_, text| yield "data: #{text}\n\n" } }
      end
    end

    redis = Redis.new(timeout: 2)
    promise = nil
    lambda do |env|
      name = env["QUERY_STRING"]
      case env["PATH_INFO"]
      when "/echo" then [200, {}, [redis.echo(name)]]
      when "/slow" then redis.call(:DEBUG, :SLEEP, 0.05); [200, {}, [redis.echo(name)]]
      when "/both"
        redis.set("key:#{name}", name)
        found = redis.pipelined { |pipe| pipe.get("key:#{name}"); pipe.echo(name) }
        [200, {}, [[found[0] || name, found[1], redis.echo(name)].uniq.join(" ")]]
      when "/events" then [200, { "content-type" => "text/event-stream" }, Events.new(redis, name)]
      when "/block" then [200, {}, [redis.blpop("never", timeout: 60).inspect]]
      when "/promise"
        promise ||= H2O::Redis.new(url: ENV["REDIS_URL"]).call(:DEBUG, :SLEEP, 1)
        [200, {}, [promise.join]]
      when "/clients" then [200, {}, [redis.client_list]]
      else [404, {}, []]
      end
    rescue Redis::BaseConnectionError => e
      [503, {}, [e.message]]
    end
  RUBY

  def setup
    firebrick_only
    skip "redis-server is not installed" unless system("which redis-server", out: File::NULL)
    _, err, = Server.new(files: { "x.rb" => "lambda { |env| [200, {}, []] }" }).command_line("check", "x.rb", "--mruby")
    skip "built without mruby" if err.include?("without mruby")
    @dir = Dir.mktmpdir
    @socket = File.join(@dir, "redis.sock")
    run_redis
  end

  def teardown
    super
    stop_redis
    FileUtils.rm_rf(@dir) if @dir
  end

  def run_redis
    start_redis
    wait_until("Redis to reply", within: 10) { redis_cli("PING").include?("PONG") }
  end

  def start_redis
    words = %w[redis-server --port 0 --appendonly no --enable-debug-command yes --save] + ["", "--unixsocket", @socket, "--dir", @dir]
    @redis = spawn(*words, out: File::NULL, err: File::NULL)
  end

  def redis_cli(words)
    `redis-cli -s #{@socket} #{words} 2>&1`
  end

  def listeners
    redis_cli("CLIENT LIST TYPE pubsub").lines.size
  end

  def stop_redis
    return unless @redis

    Process.kill(:KILL, @redis)
    Process.wait(@redis)
    @redis = nil
  end

  def handler(code, env = {}, **options)
    settings = "[routes]\n\"/\" = \"h.rb\"\n"
    start(files: { "h.rb" => code }, settings: settings, workers: nil, threads: nil, env: { "REDIS_URL" => "unix://#{@socket}" }.merge(env), **options)
  end

  # Replies without an end, by what follows their beginning again and again.
  ENDLESS = { "an array" => ["*1000000000\r\n", ":1\r\n" * 10_000], "a string" => ["$500000000\r\n", "x" * 40_000],
              "arrays in an array" => ["*1000000000\r\n", "*0\r\n" * 10_000] }.freeze

  ENDLESS.each do |kind, (first, again)|
    it "gives up a reply that is larger than a request may be (#{kind})" do
      listener = TCPServer.new("127.0.0.1", 0)
      sent = 0
      redis = Thread.new do
        loop do
          socket = listener.accept
          socket.readpartial(1000)
          socket.write(first)
          loop { sent += socket.write(again) }
        rescue SystemCallError, EOFError
          socket.close
        end
      end
      handler = <<~RUBY
        redis = Redis.new(url: "redis://127.0.0.1:#{listener.addr[1]}", timeout: 60, reconnect_attempts: 0)
        lambda do |env|
          [200, {}, [redis.get("x").to_s]]
        rescue Redis::BaseConnectionError => e
          [503, {}, [e.message]]
        end
      RUBY
      own = start(files: { "x.rb" => handler }, args: %w[--mruby-request-heap 8MiB], settings: %([routes]\n"/" = "x.rb"\n))
      before = resident(own)
      2.times do
        response = get("/", to: own)
        assert_equal 503, response.status
        assert_includes response.body, "a reply of more than 8388608 bytes"
      end
      assert_operator resident(own) - before, :<, 100, "MiB; the server has sent #{sent} bytes"
    ensure
      redis&.kill
      listener&.close
    end
  end

  # MiB
  def resident(own) = File.read("/proc/#{own.pid}/status")[/^VmRSS:\s+(\d+)/, 1].to_i / 1024

  it "runs the example" do
    own = handler(File.read(EXAMPLE))
    response = get("/", to: own)
    assert_equal [200, "application/json", "13", '{"foo":"bar"}'], [response.status, response["content-type"], response["content-length"], response.body]
  end

  it "responds with an error while Redis is down, and recovers when it is back" do
    own = handler(KINDS)
    assert_equal "one", get("/echo?one", to: own).body
    stop_redis
    3.times { |i| assert_status 503, get("/echo?#{i}", to: own) }
    assert_match(/cannot connect to Redis on .*redis.sock/, get("/echo?x", to: own).body)
    run_redis
    wait_until("Redis to be used again", within: 5) { get("/echo?back", to: own).status == 200 }
    20.times { |i| assert_equal i.to_s, get("/echo?#{i}", to: own).body }
  end

  it "times out on a Redis that hangs, and recovers" do
    own = handler(KINDS)
    assert_equal "one", get("/echo?one", to: own).body
    Process.kill(:STOP, @redis)
    hung = Array.new(8) { |i| connect(own).tap { |one| one.write(request("GET", "/echo?hung#{i}")) } }
    hung.each do |one|
      response = one.read_response("GET")
      assert_status 503, response
      assert_match(/command_timeout \(2 s\)|overdue/, response.body)
    end
    Process.kill(:CONT, @redis)
    wait_until("Redis to be used again", within: 10) { get("/echo?back", to: own).status == 200 }
    20.times { |i| assert_equal i.to_s, get("/echo?#{i}", to: own).body }
  end

  it "publishes to a hundred listeners, and unsubscribes each that disconnects" do
    own = handler(KINDS)
    clients = Array.new(100) { connect(own).tap { |one| one.write(request("GET", "/events?news")) } }
    wait_until("everybody to listen", within: 15) { listeners == 100 }
    redis_cli("PUBLISH news hello")
    clients.each { |one| one.read_through("data: hello\n\n") }
    # Nothing is published from here on: only the disconnects are noticed.
    clients.shift(60).each(&:close)
    wait_until("those who have gone to be forgotten", within: 10) { listeners == 40 }
    redis_cli("PUBLISH news again")
    clients.each { |one| one.read_through("data: again\n\n") }
    clients.each(&:close)
    wait_until("all to be forgotten", within: 10) { listeners.zero? }
    assert_equal 0, listeners
    refute_match(/mruby raised/, own.stderr)
  end

  it "responds to a half-closed client" do
    own = handler(KINDS)
    half = connect(own).tap { |one| one.write(request("GET", "/slow?half")) }
    half.socket.close_write
    assert_equal "half", half.read_response("GET").body
  end

  it "authenticates as the user in REDIS_URL, on TCP" do
    port = TCPServer.open("127.0.0.1", 0) { |free| free.local_address.ip_port }
    redis_cli("CONFIG SET port #{port}")
    redis_cli("ACL SETUSER ann on '>pass:word' '~*' '&*' +@all -client")
    own = handler(KINDS, { "REDIS_URL" => "redis://ann:pass%3Aword@127.0.0.1:#{port}/3" })
    assert_equal "mine", get("/both?mine", to: own).body
    assert_equal "mine", redis_cli("-n 3 GET key:mine").chomp
    assert_status 500, get("/clients", to: own)
    assert_logged(/mruby raised: NOPERM .*\(Redis::PermissionError\)/, on: own)
  end

  CERTIFIED = <<~'RUBY'
    lambda do |env|
      redis = Redis.new(url: ENV["REDIS_URL"], ssl_params: { ca_file: "#{ENV['FOLDER']}/#{env['QUERY_STRING']}.pem" })
      [200, {}, [redis.ping]]
    rescue Redis::CannotConnectError => e
      [503, {}, [e.message]]
    end
  RUBY

  def write_certificates(all)
    all.each { |name, pair| %w[pem key].zip(pair) { |ending, part| File.write(File.join(@dir, "#{name}.#{ending}"), part.to_pem) } }
  end

  # Makes Redis listen with TLS on this port, with the named certificate.
  def certified_redis(port, name)
    reply = redis_cli("CONFIG SET tls-auth-clients no tls-cert-file #{@dir}/#{name}.pem tls-key-file #{@dir}/#{name}.key tls-port #{port}")
    assert_equal "OK", reply.chomp
  end

  it "accepts a self-signed certificate named by ca_file, as redis-cli does, and no other" do
    write_certificates("own" => certificate, "other" => certificate, "expired" => expired_certificate)
    port = TCPServer.open("127.0.0.1", 0) { |free| free.local_address.ip_port }
    certified_redis(port, "own")
    own = handler(CERTIFIED, { "REDIS_URL" => "rediss://127.0.0.1:#{port}", "FOLDER" => @dir })
    theirs = ->(name) { `redis-cli -p #{port} --tls --cacert #{@dir}/#{name}.pem PING 2>&1`.chomp }
    assert_equal %w[PONG PONG], [theirs["own"], get("/?own", to: own).body]
    refute_equal "PONG", theirs["other"]
    refused = get("/?other", to: own)
    assert_status 503, refused
    assert_match(%r{certificate: .*; it was verified with ca_file #{@dir}/other\.pem\z}, refused.body)
    certified_redis(port, "expired")
    refute_equal "PONG", theirs["expired"]
    refused = get("/?expired", to: own)
    assert_status 503, refused
    assert_match(%r{certificate expired: .*; it was verified with ca_file #{@dir}/expired\.pem\z}, refused.body)
  end

  LIMIT = <<~'RUBY'
    limit = RateLimit.new(limit: 10, period: 600, algorithm: :ALGORITHM, name: "test", fail: :FAIL, redis: Redis.new(timeout: 1),
                          key: lambda { |env| env["QUERY_STRING"] })
    lambda do |env|
      response = limit.call(env)
      response[0] == 399 ? [200, response[1], ["in"]] : response
    end
  RUBY

  def limited(algorithm, failing)
    handler(LIMIT.sub("ALGORITHM", algorithm).sub("FAIL", failing))
  end

  %w[fixed_window sliding_window token_bucket].each do |algorithm|
    it "counts by #{algorithm} for two servers together, under concurrency" do
      servers = Array.new(2) { limited(algorithm, "closed") }
      clients = Array.new(40) { |i| connect(servers[i % 2]).tap { |one| one.write(request("GET", "/?me")) } }
      responses = clients.map { |one| one.read_response("GET") }
      let_in, refused = responses.partition { |response| response.status == 200 }
      # A window may end in between: then two windows admit 10 each.
      assert_includes [10, 20], let_in.size
      assert_equal [429], refused.map(&:status).uniq
      refused.each { |response| assert_operator Integer(response["retry-after"]), :>, 0 }
      assert_equal 10, let_in.map { |response| response["ratelimit-remaining"] }.uniq.size, "each request counts once"
      assert_status 200, get("/?you", to: servers[0])
    end
  end

  it "admits no client when Redis is down and the limit fails closed, and counts again when it is back" do
    own = limited("fixed_window", "closed")
    assert_status 200, get("/?me", to: own)
    stop_redis
    3.times do
      response = get("/?me", to: own)
      assert_equal [503, "1"], [response.status, response["retry-after"]]
    end
    assert_logged(/the rate limit test is closed: cannot connect to Redis on/, on: own)
    run_redis
    wait_until("the limit to count again", within: 10) { get("/?me", to: own).status == 200 }
    assert_operator Integer(get("/?me", to: own)["ratelimit-remaining"]), :<, 10
  end

  it "admits all clients when Redis hangs and the limit fails open" do
    own = limited("token_bucket", "open")
    assert_equal "10", get("/?me", to: own)["ratelimit-limit"]
    Process.kill(:STOP, @redis)
    response = get("/?me", to: own)
    assert_equal [200, nil], [response.status, response["ratelimit-limit"]]
    Process.kill(:CONT, @redis)
    wait_until("the limit to count again", within: 10) { get("/?me", to: own)["ratelimit-limit"] == "10" }
    assert_logged "the rate limit test is open: ", on: own
  end

  it "never delivers the reply of a disconnected client to another" do
    own = handler(KINDS)
    gone = Array.new(20) { |i| connect(own).tap { |one| one.write(request("GET", "/slow?gone#{i}")) } }
    wait_for_tasks(10, on: own)
    gone.each(&:close)
    here = Array.new(20) { |i| connect(own).tap { |one| one.write(request("GET", "/echo?here#{i}")) } }
    assert_equal(Array.new(20) { |i| "here#{i}" }, here.map { |one| one.read_response("GET").body })
  end

  it "keeps a promise that several requests await when the first of them disconnects" do
    own = handler(KINDS, args: ["--front-threads", "1"])
    gone = connect(own).tap { |one| one.write(request("GET", "/promise")) }
    wait_for_tasks(1, on: own)
    here = connect(own).tap { |one| one.write(request("GET", "/promise")) }
    wait_for_tasks(2, on: own)
    gone.socket.setsockopt(Socket::Option.linger(true, 0))
    gone.close
    assert_equal "OK", here.read_response("GET").body
  end

  it "stops a blocking command when its client disconnects" do
    own = handler(KINDS)
    blocked = -> { `redis-cli -s #{@socket} CLIENT LIST`.scan("cmd=blpop").size }
    connection = connect(own).tap { |one| one.write(request("GET", "/block")) }
    wait_until("the command to block", within: 5) { blocked.call == 1 }
    assert_equal "still", get("/echo?still", to: own).body
    connection.close
    wait_until("the command to be given up", within: 5) { blocked.call.zero? }
    assert_equal 0, blocked.call
  end
end
