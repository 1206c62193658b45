# frozen_string_literal: true

require "socket"

class Sleepers
  # A client that requests `/` a hundred times a second from its own process, while others load the server.
  class Beside
    REQUEST = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
    EVERY = 0.01

    def initialize(port, seconds)
      @reader, writer = IO.pipe
      @pid = fork do
        @reader.close
        writer << times(port, seconds).join(" ")
        writer.close
        exit! 0
      end
      writer.close
    end

    # Median, 99th percentile and longest, as text.
    def figures
      times = @reader.read.split.map(&:to_f).sort
      Process.wait(@pid)
      return "none answered" if times.empty?

      at = ->(share) { times[[(times.length * share).floor, times.length - 1].min] * 1000 }
      format("%.1f, %.1f, %.0f ms", at[0.5], at[0.99], times.last * 1000)
    end

    private

    # Each request is due at its time, whether the one before has been answered or not: the wait counts.
    def times(port, seconds)
      socket = TCPSocket.new("127.0.0.1", port)
      began = now
      (0...(seconds / EVERY).to_i).map do |number|
        due = began + (number * EVERY)
        sleep [due - now, 0].max
        socket.write(REQUEST)
        socket.readpartial(4096)
        now - due
      end
    rescue SystemCallError, EOFError
      []
    end

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end
