# frozen_string_literal: true

module Firebrick
  module Fibers
    # Makes `Mutex#sleep`, and with it `ConditionVariable#wait`, behave as with threads. With a scheduler, Ruby's own
    # method
    #
    # - does not take the lock again when the wait ends with an exception, such as a `Timeout`: before 3.3 never, later
    #   not while the fiber waits for the lock;
    # - misses a signal that another thread sends before the fiber sleeps;
    # - does not report that the time is over.
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

      # Takes the lock again. Exceptions that arrive meanwhile are raised afterwards.
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
