# frozen_string_literal: true

# Rate limits that several servers share in Redis, and their behaviour while Redis is down.
#
# Threads send the load at a steady pace. The limit alone determines the largest number of admitted requests; the smallest number
# follows from the times at which requests arrived, because a busy machine makes clients late.

require "support/rate_limit_case"
require "support/redis_server"
require "uri"

class SharedLimitsTest < RateLimitCase
  include RedisServer

  parallel! slow: true

  RATE = 100
  BURST = 25
  LIMIT = { pages: { rate: "#{RATE}/s", burst: BURST, key: "all" } }.freeze

  def shared(url, limits = LIMIT, **settings)
    limited(limits, settings: { shared: { redis: url, **settings } })
  end

  # Sends a quarter of 400 requests a second to each server while the block runs. Returns statuses by second of the monotonic clock.
  def load(servers)
    ended = false
    threads = servers.map do |own|
      Thread.new do
        connection = connect(own)
        seen = []
        following = now
        until ended
          connection.write(request("GET", "/"))
          seen << [now, connection.read_response.status]
          following = [following + (servers.size / 400.0), now - 0.2].max
          sleep([following - now, 0].max)
        end
        seen
      end
    end
    yield
    ended = true
    threads.flat_map(&:value)
  end

  # Asserts that between two times all servers together use the limit up and do not exceed it. `share`: of the limit, at least and at most.
  def assert_limited(what, seen, (from, to), share = 0.9..1.05)
    came = seen.select { |at, _| at >= from && at < to }
    count = came.count { |_, status| status == 200 }
    assert_operator count, :<=, (RATE * share.end * (to - from)) + BURST, what
    assert_operator count, :>=, share.begin * possible(came.map(&:first)), what
  end

  # Returns how many of the requests at these times a single limit without an initial burst would have admitted.
  def possible(times)
    unused = times.min + BURST.fdiv(RATE)
    times.sort.count do |at|
      after = [unused, at].max + 1.fdiv(RATE)
      (after - at <= BURST.fdiv(RATE)).tap { |admitted| unused = after if admitted }
    end
  end

  it "is one limit of four servers; each has its share while Redis is away, and the whole is back with it" do
    with_redis do |url, redis|
      # A busy machine may make Redis slow.
      servers = Array.new(4) { shared(url, timeout: "2s") }
      wait_until("the servers to find each other") { servers.all? { |own| own.stats["rate_limits"]["servers"] == 4 } }
      marks = []
      lines = []
      seen = load(servers) do
        sleep 1
        marks << now << (sleep(4) && now)
        Process.kill("KILL", redis)
        wait_until("Redis to be missed") { servers.all? { |own| own.stderr.include?("is unreachable") } }
        marks << now << (sleep(4) && now)
        redis_on(URI(url).port) do
          wait_until("Redis to be back") { servers.all? { |own| own.stderr.include?("is back; all") } }
          marks << now << (sleep(4) && now)
          lines = servers.map(&:stderr)
        end
      end
      assert_limited "with Redis", seen, marks[0..1]
      assert_limited "without", seen, marks[2..3], 0.7..1.2
      assert_limited "with it again", seen, marks[4..5]
      assert_empty seen.map(&:last).uniq - [200, 429], "nothing fails because of Redis"
      lines.each do |text|
        assert_equal 1, text.scan(%r{Redis on 127.0.0.1:\d+ is unreachable \(.+\); until it returns, this server admits 1/4 of each limit}).size
        assert_equal 1, text.scan("is back; all servers count together again").size
      end
      servers.each do |own|
        assert_operator own.stats["rate_limits"]["limits"].first["alone"], :>, 10
      end
    end
  end

  it "does not wait for a Redis that is frozen" do
    with_redis do |url, redis|
      own = shared(url, { pages: { rate: "1000/s", key: "all" } })
      assert_equal [200] * 2, statuses(2, own)
      Process.kill("STOP", redis)
      seen = load([own]) { wait_until("it to be missed") { own.stderr.include?("is unreachable (no reply within 50 ms)") } }
      assert_equal [200], seen.map(&:last).uniq
      assert_equal [200] * 50, statuses(50, own)
      assert_equal false, own.stats["rate_limits"]["redis_up"]
      assert_includes own.metrics, "firebrick_rate_limit_redis_up 0\n"
    ensure
      Process.kill("CONT", redis)
      wait_until("it to be back") { own.stderr.include?("is back; all") }
    end
  end

  it "asks Redis nothing about clients that are refused until a known time" do
    with_redis do |url|
      own = shared(url, { pages: { rate: "1/h" } })
      assert_equal [200] + ([429] * 200), statuses(201, own)
      calls = IO.popen(["redis-cli", "-u", url, "info", "commandstats"], &:read)[/cmdstat_evalsha:calls=(\d+)/, 1].to_i
      assert_operator calls, :<, 20
      keys = IO.popen(["redis-cli", "-u", url, "keys", "*"], &:read).lines(chomp: true)
      assert_equal %w[firebrick:default:rate:pages:1/h:1:127.0.0.1 firebrick:default:servers], keys.sort
    end
  end

  it "keeps limits of groups apart, and those that are not shared" do
    with_redis do |url|
      limits = { pages: { rate: "1/h" }, own: { rate: "3/h", shared: false } }
      one, two = Array.new(2) { shared(url, limits) }
      assert_equal [[200, 429], [429]], [statuses(2, one), statuses(1, two)]
      other = limited(limits, settings: { shared: { redis: url, group: "other" } })
      assert_equal [200, 429], statuses(2, other)
    end
  end

  it "starts without Redis, and finds it later" do
    with_redis do |url, redis|
      Process.kill("STOP", redis)
      own = shared(url, { pages: { rate: "2/h" } })
      assert_equal [200, 200, 429], statuses(3, own)
      assert_match(/is unreachable .* until it returns, this server admits the whole limit/, own.stderr)
      Process.kill("CONT", redis)
      wait_until("it to be back") { own.stderr.include?("is back; all") }
      assert_equal [200, 200, 429], statuses(3, own)
    end
  end

  it "says what is wrong before it listens" do
    own = Server.new(files: PAGE, settings: { shared: { redis: "redis://127.0.0.1:port" }, rate_limits: { pages: "1/s" } })
    _, err, code = own.command_line("check", own.dir)
    assert_equal [1, "error: shared.redis: no valid port in the URL; expected redis://user:password@host:port/db, rediss://… or unix:///path\n"], [code, err]
  ensure
    FileUtils.remove_entry(own.base)
  end
end
