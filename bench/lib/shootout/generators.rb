# frozen_string_literal: true

require "json"
require_relative "../loads"

module Bench
  module Shootout
    # The load generators as their users run them, in addition to those of `bench/run` (Loads). Each has `program`, `to_s` and
    # `run(url, setting)`, which returns a Sample.
    module Generators
      # Percentiles that only some report. filled: the 99th, corrected for requests not sent while waiting for responses.
      Sample = Struct.new(:requests, :seconds, :errors, :p50, :p95, :p99, :filled, :longest, keyword_init: true)

      # Writes a copy of the bench's siege.conf that sets whether connections are kept after a response.
      def self.siege_conf(setting, keep_alive)
        path = File.join(setting.dir, "siege-#{keep_alive ? 'keep-alive' : 'close'}.conf")
        text = File.read(Loads::Siege::CONFIG).sub(/^connection = .*/, "connection = #{keep_alive ? 'keep-alive' : 'close'}")
        File.write(path, text)
        path
      end

      # Users without pauses, for a fixed time.
      class TimedSiege
        # siege sometimes hangs when its time is up.
        PATIENCE = 10

        def initialize(users:, keep_alive: false)
          @users = users
          @keep_alive = keep_alive
        end

        def program = "siege"

        def to_s = "siege -b -c#{@users} -t#{yield}S, #{@keep_alive ? 'keep-alive' : 'a connection per request (its default)'}"

        def run(url, setting)
          words = ["siege", "-R", Generators.siege_conf(setting, @keep_alive), "-b", "-c#{@users}", "-t#{setting.seconds}S", url]
          text = Loads.capture(words, setting, limit: setting.seconds + PATIENCE, env: { "HOME" => setting.dir })
          json = text[/^\{.*^\}/m] or raise Failure, "siege gave no result:\n#{text}"
          result = JSON.parse(json)
          Sample.new(requests: result.fetch("successful_transactions"), seconds: result.fetch("elapsed_time"),
                     errors: result.fetch("failed_transactions"), longest: result.fetch("longest_transaction") * 1000)
        end
      end

      # ab, with a number of requests or a time, and the 95th percentile.
      class Ab
        # ab keeps a record of each request in memory and needs the number at the start.
        MOST = 3_000_000

        def initialize(concurrency:, requests: nil, keep_alive: false, timeout: 60)
          @concurrency = concurrency
          @requests = requests
          @keep_alive = keep_alive
          @timeout = timeout
        end

        def program = "ab"

        def to_s = "ab#{' -k' if @keep_alive} #{@requests ? "-n #{@requests}" : "-t #{yield}"} -c #{@concurrency}"

        def run(url, setting)
          csv = File.join(setting.dir, "ab.csv")
          File.write(csv, "")
          amount = @requests ? ["-n", @requests.to_s] : ["-t", setting.seconds.to_s, "-n", MOST.to_s]
          words = ["ab", "-q", "-s", @timeout.to_s, *("-k" if @keep_alive), *amount, "-c", @concurrency.to_s, "-e", csv, url]
          text = Loads.capture(words, setting, limit: setting.seconds + 240)
          sample(text, File.read(csv))
        end

        private

        def sample(text, csv)
          done = text[/^Complete requests:\s+(\d+)/, 1] || text[/^Total of (\d+) requests completed/, 1] || 0
          wanted = @requests || done.to_i
          plain = Loads::Ab.parse(text, csv, wanted)
          p95 = csv[/^95,([\d.]+)/, 1]&.to_f
          Sample.new(**plain.to_h, p95: p95)
        end
      end

      # wrk with the bench's own script, whose figures are exact.
      class Wrk
        def initialize(connections:)
          @connections = connections
          @wrk = Loads::Wrk.new(connections: connections)
        end

        def program = "wrk"

        def to_s = "wrk -t1 -c#{@connections} -d#{yield}s"

        def run(url, setting) = Sample.new(**@wrk.run(url, setting).to_h)
      end

      # h2load over HTTP/1.1 or, with streams, over HTTP/2. It reports no percentiles.
      class H2load
        UNITS = { "us" => 0.001, "ms" => 1, "s" => 1000 }.freeze

        def initialize(connections:, streams: nil)
          @connections = connections
          @streams = streams
        end

        def program = "h2load"

        def to_s = "h2load #{@streams ? "-m#{@streams}" : '--h1'} -c#{@connections} -D#{yield}"

        def run(url, setting)
          words = ["h2load", @streams ? "-m#{@streams}" : "--h1", "-c#{@connections}", "-D#{setting.seconds}", url]
          self.class.parse(Loads.capture(words, setting, limit: setting.seconds + 60))
        end

        def self.parse(text)
          seconds = text[/^finished in ([\d.]+)s/, 1] or raise Failure, "h2load gave no result:\n#{text}"
          requests, failed, timeouts = text.match(/^requests: .* (\d+) succeeded, (\d+) failed, .* (\d+) timeout/)&.captures
          raise Failure, "h2load gave no count of requests:\n#{text}" unless requests

          longest = text.match(/^time for request:\s+\S+\s+([\d.]+)(us|ms|s)/)
          Sample.new(requests: requests.to_i, seconds: seconds.to_f, errors: failed.to_i + timeouts.to_i,
                     longest: longest && (longest[1].to_f * UNITS.fetch(longest[2])))
        end
      end

      # `firebrick bench`, any model; words are its flags.
      class Firebrick
        attr_reader :program

        # program: path of the binary; words: the arguments besides the duration and the format.
        def initialize(program, words)
          @program = program
          @words = words
        end

        def to_s = ["firebrick bench", *@words, "-d #{yield}s"].join(" ")

        def run(url, setting)
          words = [@program, "bench", *@words, "-d", "#{setting.seconds}s", "--format", "json", url]
          self.class.parse(Loads.capture(words, setting, limit: setting.seconds + 60))
        end

        def self.parse(text)
          json = text[/^\{.*\}/m] or raise Failure, "firebrick bench gave no result:\n#{text}"
          summary = JSON.parse(json).fetch("summary")
          latency = summary.fetch("latency_ms")
          Sample.new(requests: summary.fetch("requests"), seconds: summary.fetch("seconds"), errors: summary.fetch("errors"),
                     p50: latency["p50"], p95: latency["p95"], p99: latency["p99"], filled: summary.dig("corrected_ms", "p99"), longest: latency["max"])
        rescue JSON::ParserError, KeyError => e
          raise Failure, "firebrick bench gave an unexpected result (#{e.message}):\n#{text[0, 2000]}"
        end
      end
    end
  end
end
