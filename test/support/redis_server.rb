# frozen_string_literal: true

# A Redis for one test: on a free port, without persistence, stopped afterwards.

require "socket"
require "tmpdir"

module RedisServer
  # Yields its URL and its process id.
  def with_redis
    skip "redis-server is not installed" unless system("which redis-server > /dev/null")
    port = TCPServer.open("127.0.0.1", 0) { |free| free.local_address.ip_port }
    Dir.mktmpdir do |dir|
      redis_on(port, dir) { |pid| yield "redis://127.0.0.1:#{port}/0", pid }
    end
  end

  # Starts one on a port, and yields its process id once it listens.
  def redis_on(port, dir = Dir.tmpdir)
    pid = Process.spawn("redis-server", "--port", port.to_s, "--bind", "127.0.0.1", "--save", "", "--dir", dir, out: File::NULL)
    wait_until("Redis to listen") { Socket.tcp("127.0.0.1", port).close || true rescue false }
    yield pid
  ensure
    Process.kill("TERM", pid)
    Process.wait(pid)
  end
end
