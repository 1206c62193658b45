# frozen_string_literal: true

require_relative "clients"
require_relative "hello"

module Bench
  module Hub
    # One server with its clients: memory, idle CPU, broadcasts, and deploys.
    class Trial
      # Seconds between two broadcasts, and before memory is measured: buffers of the handshakes are given back by then.
      EVERY = 0.25
      SETTLE = 3
      # Clients that come first, so that the memory that a server takes once does not count.
      FIRST = 100

      def initialize(server, count, idle:, broadcasts:, deploys:)
        @server = server
        @count = count
        @idle = idle
        @broadcasts = broadcasts
        @deploys = deploys
      end

      # Returns the figures by name; sizes in KiB, times in milliseconds.
      def figures
        warm_up
        before = [memory, kernel]
        @clients = Clients.new(@server, @count)
        sleep SETTLE
        held = [memory, kernel].zip(before).map { |now, then_| (now - then_) / @count }
        { opened: @clients.opened, memory: held[0], kernel: held[1], idle: idle, **broadcasts, **deploys }
      ensure
        @clients&.stop
      end

      private

      def warm_up
        first = Clients.new(@server, FIRST)
        @server.publish
        first.end(1)
      ensure
        first&.stop
        sleep 1
      end

      # KiB of the whole tree.
      def memory = @server.tree.pss_mib * 1024

      # KiB of the system's own objects and of buffers of TCP, for both ends of all connections.
      def kernel
        slab = File.read("/proc/meminfo")[/^Slab:\s+(\d+)/, 1].to_i
        pages = File.read("/proc/net/sockstat")[/^TCP:.* mem (\d+)/, 1].to_i
        slab + (pages * 4)
      end

      # Processors in use while nothing is published.
      def idle
        before = @server.tree.cpu_seconds
        sleep @idle
        (@server.tree.cpu_seconds - before) / @idle
      end

      def broadcasts
        calm = beside { sleep @broadcasts * EVERY }
        @clients.begin
        before = @server.tree.cpu_seconds
        busy = beside { @broadcasts.times { publish_and_wait } }
        times = @clients.end(@broadcasts)
        used = @server.tree.cpu_seconds - before
        { missed: (@broadcasts * @count) - times["deliveries"], cpu: used * 1e6 / [times["deliveries"], 1].max,
          **times.transform_keys(&:to_sym).slice(:p50, :p99, :last), calm: calm, busy: busy }
      end

      def publish_and_wait
        @server.publish
        sleep EVERY
      end

      # Returns median and 99th percentile of a hello beside the block.
      def beside
        hello = Hello.new(@server.port)
        yield
        hello.stop
      end

      # WebSockets that were closed by reloads and deaths of workers, and messages that were lost in them.
      def deploys
        return {} if @deploys.zero?

        open = @clients.begin
        @deploys.times do
          @server.reload
          @server.publish
          @server.kill_worker
          @server.publish
        end
        lost = (@deploys * 2 * @count) - @clients.end(@deploys * 2)["deliveries"]
        { closed: open - @clients.begin, lost: lost }
      end
    end
  end
end
