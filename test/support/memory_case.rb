# frozen_string_literal: true

# A server with a small `limits.memory`, an app that answers in every way, and what both must keep.

require "support/http2_client"
require "support/settings_file"
require "support/tls_case"

class MemoryCase < TlsCase
  MIB = 1 << 20
  LIMIT = 256
  # The good client is another one in the queue than those of the tests: it does not wait for their turns.
  GOOD = { "X-Forwarded-For" => "192.0.2.7" }.freeze
  # MiB of the process: the limit covers neither its program nor the reserve of the allocator.
  MOST = 300
  APP = <<~'RUBY'
    class Pieces
      def each = 18.times { yield "0123456789" * 6_500 }
    end

    class Few
      def each = 6.times { yield "0123456789" * 1_000 }
    end

    class Long
      def each = 200.times { yield "0123456789" * 6_500 }
    end

    Streamed = lambda do |io|
      200.times { io.write("0123456789" * 6_500) }
    ensure
      io.close
    end

    text = { "content-type" => "text/plain" }
    run lambda { |env|
      case env["PATH_INFO"]
      when "/string" then [200, text, ["0123456789" * 100_000]]
      when "/long" then [200, text, Long.new]
      when "/stream" then [200, text, Streamed]
      when "/large" then [200, text, ["0123456789" * 500_000]]
      when "/chunked" then [200, text, Pieces.new]
      when "/small" then [200, text, ["0123456789" * 1_500]]
      when "/few" then [200, text, Few.new]
      when %r{\A/cached} then [200, text.merge("cache-control" => "public, max-age=600"), ["0123456789" * 50_000]]
      when "/upload" then [200, text, [env["rack.input"].read.bytesize.to_s]]
      else [200, text, ["quick"]]
      end
    }
  RUBY

  def serve(settings: {}, limits: {}, threads: "5:5", **options)
    start(app: APP, binds: ["tcp://127.0.0.1:0?h2c=true"], threads: threads, **options,
          settings: { front_threads: 1, limits: { memory: "#{LIMIT}MiB", max_queue: 100_000, **limits } }.merge(settings))
  end

  # The memory of the front in MiB: resident memory, and files in memory.
  def taken(own)
    resident = File.read("/proc/#{own.pid}/status")[/^VmRSS:\s+(\d+)/, 1].to_i * 1024
    files = Dir.glob("/proc/#{own.pid}/fd/*").sum do |path|
      File.readlink(path).start_with?("/memfd:") ? File.stat(path).blocks * 512 : 0
    rescue SystemCallError
      0
    end
    (resident + files) / MIB
  end

  # Asserts that the front stays within its memory and serves a good client while the block's clients are there. Returns the most that it
  # took, in MiB.
  def assert_within_memory(own, times: 40, pause: 0.1, get: -> { get("/", to: own, headers: GOOD) })
    clients = yield
    most = 0
    served = times.times.count do
      most = [most, taken(own)].max
      sleep pause
      get.call.status == 200
    end
    stats = own.stats["memory"]
    puts "#{name}: #{most} MiB, #{stats.except(*stats.select { |_, value| value.to_s == '0' }.keys)}" if ENV["TEST_VERBOSE"]
    assert_operator most, :<, MOST, stats.to_s
    assert_operator served, :>=, times * 9 / 10, stats.to_s
    refute_match(/out of descriptors|panicked/, own.stderr)
    [clients, stats]
  end

  # Asserts that the memory of clients which have gone is free again.
  def assert_given_back(own, within: 20, get: -> { get("/", to: own, headers: GOOD) })
    left = nil
    done = wait_until(within:) do
      left = own.stats["memory"]
      left["level"] == "normal" && %w[responses streams quic files requests encoders].sum { |name| left["#{name}_bytes"] } < 2 * MIB
    end
    assert done, left.to_s
    assert_equal "quick", get.call.body
  end

  def stalled(own, path, count)
    Http2Client.new(own.address, settings: { 4 => 0 }).tap { |client| count.times { client.request(path) } }
  end

  # A client that tries again when the answer is 503, as Retry-After tells it. Returns the last answer.
  def served_at_last(within: 60)
    response = nil
    wait_until(within: within) { (response = yield).status == 200 }
    response
  end

  def until_served(&) = served_at_last(&).body
end
