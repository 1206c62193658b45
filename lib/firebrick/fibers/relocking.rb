# frozen_string_literal: true

module Firebrick
  module Fibers
    # `Mutex#sleep`, and with it `ConditionVariable#wait`, as they are with threads. Ruby's own, when there is a
    # scheduler,
    #
    # - does not take the lock again when the wait ends with an exception, such as that of a `Timeout`: before 3.3 not
    #   at all, later not while the fiber waits for the lock;
    # - misses a signal of another thread that comes before the fiber sleeps;
    # - does not tell that the time is over.
    module Relocking
      def sleep(timeout = nil)
        return super unless Fibers.here? && owned?
        raise ArgumentError, "time interval must not be negative" if timeout&.negative?

        began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
        unlock
        begin
          woken = Fiber.current_scheduler.block(self, timeout)
        ensure
          relock
        end
        (Process.clock_gettime(Process::CLOCK_MONOTONIC) - began).round if woken
      end

      private

      # What comes in meanwhile is raised afterwards.
      def relock
        begin
          lock
        rescue ThreadError
          raise
        rescue Exception => e # rubocop:disable Lint/RescueException
          late = e
          retry
        end
        raise late if late
      end
    end
  end
end
