# frozen_string_literal: true

module Firebrick
  # Serving with fibers: the Ruby part. The native loop (worker/native/src/fibers) enters the fibers and calls these
  # methods.
  module Fibers
    autoload :Alarms, "firebrick/fibers/alarms"
    autoload :Apart, "firebrick/fibers/apart"
    autoload :BlockingCalls, "firebrick/fibers/blocking_calls"
    autoload :Closing, "firebrick/fibers/closing"
    autoload :Directory, "firebrick/fibers/directory"
    autoload :Guard, "firebrick/fibers/guard"
    autoload :Interrupts, "firebrick/fibers/interrupts"
    autoload :Joining, "firebrick/fibers/joining"
    autoload :Masking, "firebrick/fibers/masking"
    autoload :PassingTimeout, "firebrick/fibers/passing_timeout"
    autoload :Relocking, "firebrick/fibers/relocking"
    autoload :Scheduler, "firebrick/fibers/scheduler"
    autoload :Select, "firebrick/fibers/select"

    # Without Ruby 3.2's inherited storage: the storage belongs to a request, and a fiber serves many.
    STORAGE = (Fiber.method_defined?(:storage) ? { storage: nil } : {}).freeze

    # The path prefix of this library in backtraces. Its methods are not pre-empted.
    OWN = "#{__dir__}/"

    # Made here, because other loops may have long calls while the first loop starts the watching thread.
    @calls = BlockingCalls.new

    # Schedulers by the numbers of their loops.
    @schedulers = {}

    class << self
      def own_paths
        OWN
      end

      # Installs the scheduler of loop `number` on the calling thread.
      def install(number)
        extend_ruby
        Fiber.set_scheduler(@schedulers[number] = Scheduler.new(number))
      end

      def uninstall
        Fiber.scheduler&.ends
        Fiber.set_scheduler(nil)
      end

      # Makes a fiber that serves requests when it is entered.
      def make
        Fiber.new(blocking: false, **STORAGE) { Native.fiber_body }
      end

      # Cleans up after each request. Runs on its fiber.
      def clean
        forget_storage unless STORAGE.empty?
      end

      # Raises for an expired alarm of `Scheduler#timeout_after`. Runs on its fiber.
      def expired(number)
        Fiber.scheduler.expired(number)
      end

      # Returns whether the fiber that set `alarm` of loop `number` is waiting inside a call.
      def calls?(number, alarm)
        @schedulers[number]&.alarms&.calls?(alarm) || false
      end

      # Forgets an alarm whose fiber has been left for good. Runs on the thread of the loop.
      def forget(alarm)
        Fiber.scheduler&.alarms&.forget(alarm)
      end

      # Makes the interrupts of a request or of a fiber of `Fiber.schedule`, at their first use.
      def interrupts
        Interrupts.new
      end

      # Raises for an `alarm` that has expired while its request blocks loop `number`. Runs on the watching thread.
      def late(number, since, alarm)
        error, message = @schedulers[number]&.alarms&.of(alarm)
        Native.fiber_raise(number, since, alarm, error, message) if error
      end

      # Returns whether the caller is on a fiber that the loop can leave.
      def here?
        Fiber.current_scheduler.is_a?(Scheduler)
      end

      # Starts the thread that watches for blocked loops, when the first loop of a worker begins.
      def watch_calls
        # A fresh object: the record of logged places must not pass to a child of this worker that becomes a template.
        @calls = BlockingCalls.new
        Thread.new { @calls.watch }.name = "firebrick: blocking calls"
      end

      # Records the backtrace of a call that has just ended, on the thread of loop `number`, blocked since `since`.
      def call_seen(number, since, env)
        @calls.see(number, since, Thread.current, env)
      end

      # Logs a finished call that blocked loop `number`. Returns whether it counts.
      def call_blocked(number, since, micros, doubtful, served)
        @calls.ended(number, since, micros, doubtful, served)
      end

      # Runs the block on its own thread, because it would block all fibers of this one, and waits for its result.
      def apart(&block)
        thread = Thread.new(&block)
        thread.report_on_exception = false
        thread.value
      end

      private

      def forget_storage
        return if Fiber.current.storage.nil? || Fiber.current.storage.empty?

        # Fiber#storage= warns that it is experimental.
        warns = Warning[:experimental]
        Warning[:experimental] = false
        Fiber.current.storage = nil
      ensure
        Warning[:experimental] = warns unless warns.nil?
      end

      # Extends methods of Ruby and libraries that do not call the scheduler.
      def extend_ruby
        unless Scheduler::ASKED_TO_SELECT
          IO.singleton_class.prepend(Select)
          Thread.prepend(Joining)
        end
        IO.prepend(Closing)
        Mutex.prepend(Relocking)
        Directory.extend_ruby
        Fiber.singleton_class.prepend(Guard)
        Thread.prepend(Masking)
        Kernel.prepend(Apart) if defined?(::Async)
      end
    end
  end
end
