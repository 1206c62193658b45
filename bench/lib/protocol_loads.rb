# frozen_string_literal: true

require_relative "loads"

module Bench
  module Loads
    # Load over HTTP/2 for a fixed time: nghttp2's h2load, on one thread.
    class H2load
      WARM_UP_SECONDS = 1

      def initialize(connections:, streams:)
        @connections = connections
        @streams = streams
      end

      def program = "h2load"

      def to_s = "h2load -t1 -c#{@connections} -m#{@streams}"

      def warm_up(url, setting)
        run(url, setting, seconds: [WARM_UP_SECONDS, setting.seconds].min)
      end

      def run(url, setting, seconds: setting.seconds)
        words = %W[h2load -t1 -c#{@connections} -m#{@streams} -D#{seconds} #{url}]
        self.class.parse(Loads.capture(words, setting, limit: seconds + 30))
      end

      # Requests in progress when the time was over are not errors.
      def self.parse(text)
        good, = text.match(/^status codes: (\d+) 2xx/)&.captures
        counts = text[/^requests: .*/].to_s.scan(/(\d+) (failed|errored|timeout)/).to_h { |number, name| [name, number.to_i] }
        raise Failure, "h2load gave no result:\n#{text}" unless good && counts.size == 3

        seconds = text[/^finished in ([\d.]+)s/, 1]&.to_f
        Sample.new(requests: good.to_i, seconds: seconds, errors: counts["failed"])
      end
    end

    # Load over HTTP/3 for a fixed time: `firebrick bench`, on one thread. It does not use the server's parser.
    class Http3
      WARM_UP_SECONDS = 1

      def initialize(connections:, streams:)
        @connections = connections
        @streams = streams
      end

      def program = Program.path

      def to_s = "firebrick bench --http 3 -t1 -c#{@connections} --streams #{@streams}"

      def warm_up(url, setting)
        run(url, setting, seconds: [WARM_UP_SECONDS, setting.seconds].min)
      end

      def run(url, setting, seconds: setting.seconds)
        words = %W[#{program} bench #{url} -k --http 3 -t 1 -c #{@connections} --streams #{@streams} -d #{seconds}s --no-stages --format json --no-progress]
        self.class.parse(Loads.capture(words, setting, limit: seconds + 30))
      end

      def self.parse(text)
        line = text.lines.find { |candidate| candidate.start_with?("{") }
        raise Failure, "firebrick bench gave no result:\n#{text}" unless line

        outcome = JSON.parse(line).fetch("outcome")
        raise Failure, "firebrick bench did not speak HTTP/3" unless outcome.dig("server", "protocol") == "HTTP/3"

        errors = outcome.fetch("errors").sum { |_name, count| count.is_a?(Integer) ? count : 0 }
        Sample.new(requests: outcome.fetch("ok"), seconds: outcome.fetch("seconds"), errors: errors)
      end
    end

    # Full TLS handshakes, each with one request: ab without keep-alive, which resumes no session.
    class Handshakes < Ab
      def run(url, setting)
        super.tap { |sample| sample.errors = 0 if sample.errors.negative? }
      end

      def to_s = "#{super}, a handshake each"
    end

    # Resumed TLS handshakes, one after the other: openssl s_time. With `full`, full ones.
    class Resumptions
      def initialize(version: nil)
        @version = version
      end

      def program = "openssl"

      def to_s = "openssl s_time -reuse#{" -#{@version}" if @version}"

      def warm_up(url, setting)
        run(url, setting, seconds: 1)
      end

      def run(url, setting, seconds: setting.seconds)
        host, path = url.match(%r{//([^/]+)(.*)}).captures
        # The ticket, which TLS 1.3 sends after the handshake, is only processed while reading a response.
        words = %W[openssl s_time -connect #{host} -reuse -time #{seconds} -www #{path}]
        words << "-#{@version}" if @version
        self.class.parse(Loads.capture(words, setting, limit: seconds + 30))
      end

      # The second figure is the one with reused sessions; a connection that was not resumed counts as an error.
      def self.parse(text)
        timed = text.scan(/^(\d+) connections in ([\d.]+) real seconds/).last
        raise Failure, "openssl s_time gave no result:\n#{text}" unless timed

        Sample.new(requests: timed[0].to_i, seconds: timed[1].to_f, errors: 0)
      end
    end
  end
end
