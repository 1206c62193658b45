# frozen_string_literal: true

require "firebrick/fork_guard"
require "firebrick/template/guard_process"
require "firebrick/template/service_process"
require "firebrick/worker"
require "firebrick/worker_exit"

module Firebrick
  class Template
    # The workers that this template has forked and not yet reaped.
    class Children
      # Seconds between TERM and KILL when the front has exited.
      GRACE = 1.0

      # Readable when a child has exited.
      attr_reader :bell

      # jobs:: the processes started by `before_fork` hooks; they are only reaped
      def initialize(control, jobs)
        @control = control
        @pids = []
        @jobs = jobs
        @guards = jobs.pids.dup
        @indexes = {}
        @bell, @ring = IO.pipe
        ForkGuard.hold(@bell, @ring)
        @app_trap = trap("CHLD") { @ring.write_nonblock(".", exception: false) }
      end

      # Forks a worker. Yields in the child, which must not return.
      def fork_worker(index, descriptors)
        ForkGuard.hold(*descriptors)
        pid = try_to_fork(index)
        if pid == :child
          leave
          yield
        end
        descriptors.each { |descriptor| IO.for_fd(descriptor).close }
        ForkGuard.release(*descriptors)
        forked(index, pid) if pid
      end

      # Forks a process that is not reported on. Yields in the child, which must not return.
      def fork_guard
        pid = ForkGuard.ours { fork }
        unless pid
          leave
          ForkGuard.release_all
          yield
        end
        @guards << pid
      end

      # Starts the jobs again: the front had ended them, and now uses their code again.
      def start_jobs_again
        @guards.concat(@jobs.start_again)
        @control.send_message(Wire::Report::JOBS, *@jobs.pids)
      rescue StandardError, ScriptError => e
        Report.log("firebrick: #{Exchange.name}: before_fork hook: #{Report.text(e)}")
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

          exited(pid, how || Wire::End::EXIT, code || 0, peak || 0)
          false
        end
        @guards.select! { |pid| Native.reap(pid).nil? }
      end

      # Ends all workers, because the front has exited.
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

      def now
        Process.clock_gettime(Process::CLOCK_MONOTONIC)
      end

      def forked(index, pid)
        @pids << pid
        @indexes[pid] = index
        @control.send_message(Wire::Report::FORKED, index, pid)
        hooks(:after_worker_fork, index)
      end

      def exited(pid, how, code, peak)
        @control.send_message(Wire::Report::EXITED, pid, how, code, peak)
        hooks(:after_worker_exit, WorkerExit.new(@indexes.delete(pid), pid, how, code))
      end

      # Runs hooks. Exceptions are only logged, because the worker has been forked, or has exited, already.
      def hooks(name, argument)
        Firebrick.run_hooks(name, argument)
      rescue StandardError, ScriptError => e
        Report.log("firebrick: #{Exchange.name}: #{name} hook: #{Report.text(e)}")
      end

      # Returns the child's process id; `:child` in the child; nil when the fork failed.
      def try_to_fork(index)
        Firebrick.run_hooks(:before_worker_fork, index)
        ForkGuard.ours { fork } || :child
      rescue StandardError, ScriptError, NoMemoryError => e
        @control.send_message(Wire::Report::FORK_FAILED, index, e.message)
        nil
      end

      # Gives up the template's resources in the child.
      def leave
        trap("CHLD", @app_trap || "DEFAULT")
        own = [@control, @bell, @ring]
        own.each(&:close)
        ForkGuard.release(*own)
        @pids.clear
        @guards.clear
        @indexes.clear
      end
    end
  end
end
