# frozen_string_literal: true

require "json"
require "socket"
require "timeout"
require "uri"
require_relative "failure"
require_relative "machine"
require_relative "program"

module Bench
  # Load generators. Each has `program`, `to_s` (for the report), `warm_up` and `run`.
  #
  # 1. `run` returns a Sample, or raises Failure when the program gives no result in time.
  # 2. A request without a 2xx or 3xx response counts as an error, and so does one that was never sent.
  module Loads
    # responses, seconds taken, latencies in milliseconds (nil where the program does not report them).
    Sample = Struct.new(:requests, :seconds, :errors, :p50, :p99, :longest, keyword_init: true)

    # How a generator runs: seconds for those that run by time, its processor, a directory for its files.
    Setting = Struct.new(:seconds, :cpu, :dir, keyword_init: true)

    # Runs a command on the generator's processor and returns its output.
    def self.capture(words, setting, limit:, env: {})
      IO.popen([env, *Machine.pinned(setting.cpu, words), { in: File::NULL, err: %i[child out] }]) do |io|
        ended = false
        Timeout.timeout(limit) { io.read }.tap { ended = true }
      rescue Timeout::Error
        raise Late, "`#{words.join(' ')}` did not end within #{limit} s"
      ensure
        Process.kill(:KILL, io.pid) unless ended
      end
    end

    # Keep-alive load for a fixed time.
    class Wrk
      SCRIPT = File.expand_path("../wrk.lua", __dir__)
      WARM_UP_SECONDS = 1

      # files and folders: how many random files to request, see Sites.many_path; 0: only the URL.
      # least: seconds of the shortest load, where opening the connections takes a while; patience: seconds after which a response is
      # an error.
      def initialize(connections:, headers: {}, upload: 0, files: 0, folders: 0, least: 1, patience: 2)
        @connections = connections
        @headers = headers
        @upload = upload
        @files = files
        @folders = folders
        @least = least
        @patience = patience
      end

      def program = "wrk"

      def to_s
        extra = [(", #{@headers.size} headers" if @headers.any?), (", POST of #{@upload} bytes" if @upload.positive?),
                 (", #{@files} files at random" if @files.positive?)]
        "wrk -t1 -c#{@connections}#{extra.join}"
      end

      def warm_up(url, setting)
        run(url, setting, seconds: [WARM_UP_SECONDS, setting.seconds].min)
      end

      def run(url, setting, seconds: [setting.seconds, @least].max)
        words = ["wrk", "-t1", "-c#{@connections}", "-d#{seconds}s", "--timeout", "#{@patience}s", "-s", SCRIPT]
        @headers.each { |name, value| words.push("-H", "#{name}: #{value}") }
        env = { "BENCH_UPLOAD_BYTES" => @upload.to_s, "BENCH_FILES" => @files.to_s, "BENCH_FOLDERS" => @folders.to_s }
        text = Loads.capture([*words, url], setting, limit: seconds + 30, env: env)
        line = text.lines.reverse.find { |candidate| candidate.start_with?("{") }
        raise Failure, "wrk gave no result:\n#{text}" unless line

        Sample.new(**JSON.parse(line, symbolize_names: true))
      end
    end

    # A fixed number of requests, with or without keep-alive.
    class Ab
      def initialize(requests:, concurrency:, keep_alive: false, warm_up: 0)
        @requests = requests
        @concurrency = concurrency
        @keep_alive = keep_alive
        @warm_up = warm_up
      end

      def program = "ab"

      def to_s = "ab #{'-k ' if @keep_alive}-n #{@requests} -c #{@concurrency}"

      def warm_up(url, setting)
        load(url, setting, @warm_up, [@warm_up, @concurrency].min) if @warm_up.positive?
      end

      def run(url, setting) = load(url, setting, @requests, @concurrency)

      # Reads ab's text and its CSV of percentiles ("50,1.234" per line, milliseconds).
      def self.parse(text, csv, requests)
        done = text[/^Complete requests:\s+(\d+)/, 1]
        # When ab gives up it prints no summary, only its progress.
        done ||= text[/^Total of (\d+) requests completed/, 1] || 0
        failed = [/^Failed requests:\s+(\d+)/, /^Non-2xx responses:\s+(\d+)/].sum { |line| text[line, 1].to_i }
        times = csv.lines.drop(1).to_h { |line| line.split(",").then { |percent, ms| [percent.to_i, ms.to_f] } }
        Sample.new(requests: done.to_i, seconds: text[/^Time taken for tests:\s+([\d.]+)/, 1]&.to_f,
                   errors: failed + requests - done.to_i, p50: times[50], p99: times[99], longest: times[100])
      end

      private

      def load(url, setting, requests, concurrency)
        csv = File.join(setting.dir, "ab.csv")
        File.write(csv, "")
        words = %W[ab -q -s 60 -n #{requests} -c #{concurrency} -e #{csv}]
        words << "-k" if @keep_alive
        text = Loads.capture([*words, url], setting, limit: 180)
        self.class.parse(text, File.read(csv), requests)
      end
    end

    # Users that each send a number of requests, one connection per request.
    class Siege
      CONFIG = File.expand_path("../siege.conf", __dir__)

      def initialize(users:, repeats:)
        @users = users
        @repeats = repeats
      end

      def program = "siege"

      def to_s = "siege -b -c#{@users} -r#{@repeats}"

      def warm_up(_url, _setting); end

      def run(url, setting)
        words = %W[siege -R #{CONFIG} -b -c#{@users} -r#{@repeats} #{url}]
        # siege writes a configuration into HOME if there is none.
        text = Loads.capture(words, setting, limit: 300, env: { "HOME" => setting.dir })
        self.class.parse(text, @users * @repeats)
      end

      def self.parse(text, expected)
        json = text[/^\{.*^\}/m] or raise Failure, "siege gave no result:\n#{text}"
        result = JSON.parse(json)
        done = result.fetch("successful_transactions")
        Sample.new(requests: done, seconds: result.fetch("elapsed_time"), errors: expected - done,
                   longest: result.fetch("longest_transaction") * 1000)
      end
    end

    # Requests at a fixed rate, whether or not responses arrive, at random times: what independent users wait.
    class Rate
      # The least time for the 99th percentile.
      LEAST_SECONDS = 2

      def initialize(rate:)
        @rate = rate
      end

      def program = Program.path

      def to_s = "firebrick bench --rate #{@rate} --arrivals random"

      def warm_up(url, setting) = load(url, setting, 1)

      def run(url, setting) = load(url, setting, [setting.seconds, LEAST_SECONDS].max)

      def self.parse(text)
        summary = JSON.parse(text, symbolize_names: true).fetch(:summary)
        times = summary.fetch(:latency_ms)
        Sample.new(requests: summary.fetch(:requests), seconds: summary.fetch(:seconds), errors: summary.fetch(:errors),
                   p50: times.fetch(:p50), p99: times.fetch(:p99), longest: times.fetch(:max))
      rescue JSON::ParserError, KeyError
        raise Failure, "firebrick bench gave no result:\n#{text.lines.last(5).join}"
      end

      private

      def load(url, setting, seconds)
        words = [program, "bench", "--rate", @rate.to_s, "--arrivals", "random", "-d", "#{seconds}s", "--no-stages", "--format", "json", url]
        self.class.parse(Loads.capture(words, setting, limit: seconds + 30))
      end
    end

    # Connections that stay open after one response each. The block gets their number when a part and when all of them are open.
    class Idle
      # Memory is compared from this number on: the first connections also allocate the server's own working memory.
      FIRST = 1_000
      PART = 16_384

      # Returns the growth of memory per connection in bytes; open: [connections, MiB] at two moments.
      def self.bytes(open)
        (few, before), (many, after) = open
        (after - before) * 1024 * 1024 / (many - few) if after
      end

      def initialize(connections:)
        @connections = connections
      end

      def program = nil

      def to_s = "#{@connections} connections, one request each, then idle"

      def warm_up(_url, _setting); end

      def run(url, _setting)
        uri = URI(url)
        began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
        sockets = []
        [[FIRST, @connections / 2].min, @connections].each do |count|
          sockets << opened(uri) while sockets.size < count
          yield count if block_given?
        end
        Sample.new(requests: sockets.size, seconds: Process.clock_gettime(Process::CLOCK_MONOTONIC) - began, errors: 0)
      rescue SystemCallError, EOFError => e
        raise Failure, "connection #{sockets.size + 1} of #{@connections}: #{e.message}"
      ensure
        sockets&.each(&:close)
      end

      private

      def connect(uri) = TCPSocket.new(uri.host, uri.port)

      # Opens a connection and reads its response.
      def opened(uri)
        socket = connect(uri)
        socket.write("GET #{uri.path} HTTP/1.1\r\nHost: #{uri.host}\r\n\r\n")
        text = +""
        text << socket.readpartial(PART) until text.include?("\r\n\r\n")
        head, body = text.split("\r\n\r\n", 2)
        raise Failure, "unexpected response: #{head.lines.first}" unless head.start_with?("HTTP/1.1 200")

        missing = head[/^content-length: *(\d+)/i, 1].to_i - body.bytesize
        socket.read(missing) if missing.positive?
        socket
      end
    end
  end
end
