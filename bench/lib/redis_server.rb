# frozen_string_literal: true

require "socket"
require_relative "failure"
require_relative "machine"
require_relative "process_tree"

module Bench
  # A real Redis on a free port, without persistence, with the keys that the apps and handlers read.
  class RedisServer
    SET = %(MSET greeting "Hello from Redis" foo bar\r\n)
    BOOT_SECONDS = 10

    attr_reader :port, :url

    # dir: directory for its log; cpu: processor to run on, nil for any.
    def initialize(dir, cpu: nil)
      Machine.need("redis-server")
      @port = Machine.free_port
      @url = "redis://127.0.0.1:#{@port}/0"
      words = %W[redis-server --bind 127.0.0.1 --port #{@port} --dir #{dir} --appendonly no] + ["--save", ""]
      @pid = Process.spawn(*Machine.pinned(cpu, words), out: File.join(dir, "redis.log"), err: %i[child out])
      seed(Process.clock_gettime(Process::CLOCK_MONOTONIC) + BOOT_SECONDS)
    end

    def stop
      Process.kill(:TERM, @pid)
      Process.wait(@pid)
    end

    def tree = ProcessTree.new(@pid)

    private

    def seed(deadline)
      reply = Socket.tcp("127.0.0.1", @port) { |socket| socket.write(SET) && socket.gets }
      reply == "+OK\r\n" or give_up("replied #{reply.inspect} to MSET")
    rescue Errno::ECONNREFUSED
      give_up("did not reply within #{BOOT_SECONDS} s") if Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline
      sleep 0.05
      retry
    end

    def give_up(what)
      stop
      raise Failure, "redis-server at #{@url} #{what}"
    end
  end
end
