# frozen_string_literal: true

require "socket"

module Bench
  module Hub
    # A client that requests `/` a hundred times a second from its own process. Each request is due at its time, whether the
    # one before has been answered or not: the wait counts.
    class Hello
      REQUEST = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
      EVERY = 0.01

      def initialize(port)
        @reader, writer = IO.pipe
        @pid = fork do
          @reader.close
          stopped = false
          trap("TERM") { stopped = true }
          times = []
          run(port, times) { stopped }
          writer << times.join(" ")
          writer.close
          exit! 0
        end
        writer.close
      end

      # Ends it. Returns median and 99th percentile in milliseconds.
      def stop
        Process.kill("TERM", @pid)
        times = @reader.read.split.map(&:to_f).sort
        Process.wait(@pid)
        [0.5, 0.99].map { |share| (times[(times.length * share).floor] || Float::NAN) * 1000 }
      end

      private

      def run(port, times)
        socket = TCPSocket.new("127.0.0.1", port)
        due = now
        until yield
          sleep [due - now, 0].max
          socket.write(REQUEST)
          socket.readpartial(4096)
          times << (now - due)
          due += EVERY
        end
      end

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end
