# frozen_string_literal: true

require "firebrick/worker"

module Firebrick
  class Template
    # The workers that this template has forked and not yet reaped.
    class Children
      # Seconds between TERM and KILL when the front has exited.
      GRACE = 1.0

      # Readable when a child has exited.
      attr_reader :bell

      def initialize(control)
        @control = control
        @pids = []
        @bell, @ring = IO.pipe
        @app_trap = trap("CHLD") { @ring.write_nonblock(".", exception: false) }
      end

      def fork_worker(index, descriptors, boot)
        pid = fork { become_worker(index, descriptors, boot) }
        @pids << pid
        @control.send_message("forked", index, pid)
      rescue SystemCallError, NoMemoryError => e
        @control.send_message("fork_failed", index, e.message)
      ensure
        descriptors.each { |descriptor| IO.for_fd(descriptor).close }
      end

      def kill(pid, signal)
        Process.kill(signal, pid) if @pids.include?(pid)
      rescue Errno::ESRCH
        nil
      end

      # Reports the workers that have exited.
      def reap
        @bell.read_nonblock(4096, exception: false)
        @pids.select! do |pid|
          how, code, peak = Native.reap(pid)
          next true if how.nil?

          @control.send_message("exited", pid, how || "exit", code || 0, peak || 0)
          false
        end
      end

      # The front has exited: ends all workers.
      def stop_all
        @pids.each { |pid| kill(pid, "TERM") }
        deadline = now + GRACE
        until @pids.empty? || now > deadline
          sleep 0.01
          reap
        end
        @pids.each { |pid| kill(pid, "KILL") }
      end

      private

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

      def become_worker(index, descriptors, boot)
        trap("CHLD", @app_trap || "DEFAULT")
        [@control, @bell, @ring].each(&:close)
        Worker.run(index, descriptors, boot)
      end
    end
  end
end
