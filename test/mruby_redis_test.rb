# frozen_string_literal: true

# Redis from handlers on mruby: the example, restarts of Redis, clients that give up while Redis is asked, and limits that two
# servers count together.
#
# FIREBRICK_ROUNDS  how often Redis is killed and started again under load (12)

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
    wait_until("Redis to answer", within: 10) { redis_says("PING").include?("PONG") }
  end

  def start_redis
    words = %w[redis-server --port 0 --appendonly no --enable-debug-command yes --save] + ["", "--unixsocket", @socket, "--dir", @dir]
    @redis = spawn(*words, out: File::NULL, err: File::NULL)
  end

  def redis_says(words)
    `redis-cli -s #{@socket} #{words} 2>&1`
  end

  def listeners
    redis_says("CLIENT LIST TYPE pubsub").lines.size
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

  # Asks on one connection until it is told to stop: how often each status came, how long the longest took, and every answer that
  # was not its own.
  def load(own, client, stop)
    told = { statuses: Hash.new(0), longest: 0, wrong: [] }
    connection = Connection.new(own.address, deadline: 30)
    turn = 0
    until stop[0]
      mine = "#{client}-#{turn += 1}"
      response = nil
      took = elapsed { response = connection.write(request("GET", "/both?#{mine}")).read_response("GET") }
      told[:longest] = [told[:longest], took].max
      told[:statuses][response.status] += 1
      told[:wrong] << [mine, response.body] if response.status == 200 && response.body != mine
    end
    told
  ensure
    connection&.close
  end

  it "runs the example" do
    own = handler(File.read(EXAMPLE))
    response = get("/", to: own)
    assert_equal [200, "application/json", "13", '{"foo":"bar"}'], [response.status, response["content-type"], response["content-length"], response.body]
  end

  it "runs the handler that people would write, to the letter" do
    own = handler(<<~'RUBY')
      class JsonApi
        def initialize; @storage = Redis.new; @storage['foo'] = 'bar'; end
        def call(env)
          body = JSON.generate({foo: @storage['foo']})
          [200, {'Content-Type' => 'application/json', 'Content-Length' => body.size}, [body]]
        end
      end
      JsonApi.new
    RUBY
    connection = connect(own)
    3.times { assert_equal '{"foo":"bar"}', connection.write(request("GET", "/")).read_response("GET").body }
  end

  it "answers with an error while Redis is gone, and goes on when it is back" do
    own = handler(KINDS)
    assert_equal "one", get("/echo?one", to: own).body
    stop_redis
    3.times { |i| assert_status 503, get("/echo?#{i}", to: own) }
    assert_match(/cannot connect to Redis on .*redis.sock/, get("/echo?x", to: own).body)
    run_redis
    wait_until("Redis to be used again", within: 5) { get("/echo?back", to: own).status == 200 }
    20.times { |i| assert_equal i.to_s, get("/echo?#{i}", to: own).body }
  end

  it "survives a Redis that is killed again and again under load" do
    own = handler(KINDS)
    stop = [false]
    clients = Array.new(16) { |client| Thread.new { load(own, client, stop) } }
    random = Random.new(7)
    Integer(ENV.fetch("FIREBRICK_ROUNDS", "12")).times do
      sleep random.rand(0.15)
      stop_redis
      sleep random.rand(0.05)
      start_redis
    end
    wait_until("Redis to be used again", within: 10) { get("/echo?back", to: own).status == 200 }
    before = clients.size
    wait_until("everybody to go on", within: 10) { before.times.all? { |i| get("/both?after#{i}", to: own).body == "after#{i}" } }
    stop[0] = true
    told = clients.map(&:value)
    assert_empty told.flat_map { |one| one[:wrong] }, "each gets its own reply"
    statuses = told.map { |one| one[:statuses] }.reduce { |sum, one| sum.merge(one) { |_, a, b| a + b } }
    assert_empty statuses.keys - [200, 503], statuses.inspect
    assert_operator statuses[503], :>, 0, "it was gone"
    assert_operator statuses[200], :>, 100, statuses.inspect
    assert_operator told.map { |one| one[:longest] }.max, :<, 2 + 5, "none waits longer than timeout: says"
  end

  it "gives up on a Redis that hangs, within the timeout, and goes on with it" do
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

  it "tells a hundred listeners, and forgets each as soon as it has gone" do
    own = handler(KINDS)
    clients = Array.new(100) { connect(own).tap { |one| one.write(request("GET", "/events?news")) } }
    wait_until("everybody to listen", within: 15) { listeners == 100 }
    redis_says("PUBLISH news hello")
    clients.each { |one| one.read_through("data: hello\n\n") }
    # Nothing is published any more: only that they go tells of them.
    clients.shift(60).each(&:close)
    wait_until("those who have gone to be forgotten", within: 10) { listeners == 40 }
    redis_says("PUBLISH news again")
    clients.each { |one| one.read_through("data: again\n\n") }
    clients.each(&:close)
    wait_until("all to be forgotten", within: 10) { listeners.zero? }
    assert_equal 0, listeners
    refute_match(/mruby raised/, own.stderr)
  end

  it "answers a client that has closed its side but still reads" do
    own = handler(KINDS)
    half = connect(own).tap { |one| one.write(request("GET", "/slow?half")) }
    half.socket.close_write
    assert_equal "half", half.read_response("GET").body
  end

  it "speaks to Redis as the user of REDIS_URL, on TCP" do
    port = TCPServer.open("127.0.0.1", 0) { |free| free.local_address.ip_port }
    redis_says("CONFIG SET port #{port}")
    redis_says("ACL SETUSER ann on '>pass:word' '~*' '&*' +@all -client")
    own = handler(KINDS, { "REDIS_URL" => "redis://ann:pass%3Aword@127.0.0.1:#{port}/3" })
    assert_equal "mine", get("/both?mine", to: own).body
    assert_equal "mine", redis_says("-n 3 GET key:mine").chomp
    assert_status 500, get("/clients", to: own)
    assert_match(/mruby raised: NOPERM .*\(Redis::PermissionError\)/, own.stderr)
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

  # Redis speaks TLS on this port with a certificate that was written.
  def certified_redis(port, name)
    said = redis_says("CONFIG SET tls-auth-clients no tls-cert-file #{@dir}/#{name}.pem tls-key-file #{@dir}/#{name}.key tls-port #{port}")
    assert_equal "OK", said.chomp
  end

  it "believes a certificate that signs itself where ca_file names it, as redis-cli does, and no other" do
    write_certificates("own" => certificate, "other" => certificate, "expired" => expired_certificate)
    port = TCPServer.open("127.0.0.1", 0) { |free| free.local_address.ip_port }
    certified_redis(port, "own")
    own = handler(CERTIFIED, { "REDIS_URL" => "rediss://127.0.0.1:#{port}", "FOLDER" => @dir })
    theirs = ->(name) { `redis-cli -p #{port} --tls --cacert #{@dir}/#{name}.pem PING 2>&1`.chomp }
    assert_equal %w[PONG PONG], [theirs["own"], get("/?own", to: own).body]
    refute_equal "PONG", theirs["other"]
    refused = get("/?other", to: own)
    assert_status 503, refused
    assert_match(%r{certificate: .*; it was verified by ssl_params ca_file #{@dir}/other\.pem\z}, refused.body)
    certified_redis(port, "expired")
    refute_equal "PONG", theirs["expired"]
    refused = get("/?expired", to: own)
    assert_status 503, refused
    assert_match(%r{certificate expired: .*; it was verified by ssl_params ca_file #{@dir}/expired\.pem\z}, refused.body)
  end

  LIMIT = <<~'RUBY'
    limit = RateLimit.new(limit: 10, period: 600, algorithm: :ALGORITHM, name: "test", fail: :FAIL, redis: Redis.new(timeout: 1),
                          key: lambda { |env| env["QUERY_STRING"] })
    lambda do |env|
      answer = limit.call(env)
      answer[0] == 399 ? [200, answer[1], ["in"]] : answer
    end
  RUBY

  def limited(algorithm, failing)
    handler(LIMIT.sub("ALGORITHM", algorithm).sub("FAIL", failing))
  end

  %w[fixed_window sliding_window token_bucket].each do |algorithm|
    it "counts by #{algorithm} for two servers together, whoever asks at once" do
      servers = Array.new(2) { limited(algorithm, "closed") }
      asked = Array.new(40) { |i| connect(servers[i % 2]).tap { |one| one.write(request("GET", "/?me")) } }
      answers = asked.map { |one| one.read_response("GET") }
      let_in, refused = answers.partition { |answer| answer.status == 200 }
      # A window may end in between.
      assert_includes [10, 20], let_in.size
      assert_equal [429], refused.map(&:status).uniq
      refused.each { |answer| assert_operator Integer(answer["retry-after"]), :>, 0 }
      assert_equal 10, let_in.map { |answer| answer["ratelimit-remaining"] }.uniq.size, "each counts once"
      assert_status 200, get("/?you", to: servers[0])
    end
  end

  it "lets nobody in when Redis is gone and the limit is closed, and counts on when it is back" do
    own = limited("fixed_window", "closed")
    assert_status 200, get("/?me", to: own)
    stop_redis
    3.times do
      answer = get("/?me", to: own)
      assert_equal [503, "1"], [answer.status, answer["retry-after"]]
    end
    assert_match(/the rate limit test is closed: cannot connect to Redis on/, own.stderr)
    run_redis
    wait_until("the limit to count again", within: 10) { get("/?me", to: own).status == 200 }
    assert_operator Integer(get("/?me", to: own)["ratelimit-remaining"]), :<, 10
  end

  it "lets everybody in when Redis hangs and the limit is open" do
    own = limited("token_bucket", "open")
    assert_equal "10", get("/?me", to: own)["ratelimit-limit"]
    Process.kill(:STOP, @redis)
    answer = get("/?me", to: own)
    assert_equal [200, nil], [answer.status, answer["ratelimit-limit"]]
    Process.kill(:CONT, @redis)
    wait_until("the limit to count again", within: 10) { get("/?me", to: own)["ratelimit-limit"] == "10" }
    assert_includes own.stderr, "the rate limit test is open: "
  end

  it "gives nobody the reply of a client that has gone" do
    own = handler(KINDS)
    gone = Array.new(20) { |i| connect(own).tap { |one| one.write(request("GET", "/slow?gone#{i}")) } }
    sleep 0.1
    gone.each(&:close)
    here = Array.new(20) { |i| connect(own).tap { |one| one.write(request("GET", "/echo?here#{i}")) } }
    assert_equal(Array.new(20) { |i| "here#{i}" }, here.map { |one| one.read_response("GET").body })
  end

  it "keeps a promise that several wait for when the first of them has gone" do
    own = handler(KINDS, args: ["--front-threads", "1"])
    gone = connect(own).tap { |one| one.write(request("GET", "/promise")) }
    sleep 0.2
    here = connect(own).tap { |one| one.write(request("GET", "/promise")) }
    sleep 0.2
    gone.socket.setsockopt(Socket::Option.linger(true, 0))
    gone.close
    assert_equal "OK", here.read_response("GET").body
  end

  it "stops blocking in Redis when its client has gone" do
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
