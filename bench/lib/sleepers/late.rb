# frozen_string_literal: true

require "socket"

class Sleepers
  # A server on a Unix socket that answers each connection after some seconds. The requests of the trial `read` wait for it.
  class Late
    # Connections per process, which has 20,000 descriptors.
    MOST = 18_000

    attr_reader :path

    def initialize(dir, count, seconds)
      @path = File.join(dir, "late.sock")
      server = UNIXServer.new(@path)
      server.listen(4096)
      @pids = Array.new((count.to_f / MOST).ceil) { fork { serve(server, seconds) } }
      server.close
    end

    def stop
      @pids.each { |pid| Process.kill("KILL", pid) }
      @pids.each { |pid| Process.wait(pid) }
    end

    private

    def serve(server, seconds)
      Process.setrlimit(Process::RLIMIT_NOFILE, [MOST + 1000, Process.getrlimit(Process::RLIMIT_NOFILE)[1]].min)
      waiting = []
      loop do
        until waiting.empty? || waiting.first[0] > now
          _, socket = waiting.shift
          answer(socket)
        end
        accept(server, waiting, seconds)
      end
    end

    # Accepts all pending connections: clients of a Unix socket with a full backlog block in connect(2), together with their threads.
    def accept(server, waiting, seconds)
      return sleep(0.005) if waiting.length >= MOST

      limit = waiting.empty? ? nil : [waiting.first[0] - now, 0].max
      return unless server.wait_readable(limit)

      until waiting.length >= MOST
        socket = server.accept_nonblock(exception: false)
        return if socket == :wait_readable

        waiting << [now + seconds, socket]
      end
    end

    # Reads the request before closing the socket: closing one with unread data resets the connection.
    def answer(socket)
      socket.read_nonblock(64, exception: false)
      socket.write("late\n")
      socket.close
    rescue SystemCallError
      nil
    end

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end
