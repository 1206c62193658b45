# frozen_string_literal: true

module Firebrick
  # Serving with fibers. The loop that enters them is native (ext/worker/src/fibers), and calls what is here.
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

    # With Ruby 3.2's storage, which belongs to a request, while a fiber serves many.
    STORAGE = (Fiber.method_defined?(:storage) ? { storage: nil } : {}).freeze

    # How the paths of this library begin in backtraces: its methods are not pre-empted.
    OWN = "#{__dir__}/".freeze

    # Other loops may have long calls while the first one starts the thread that watches them.
    @calls = BlockingCalls.new

    # By the numbers of their loops.
    @schedulers = {}

    class << self
      def own_paths
        OWN
      end

      # Gives the calling thread its scheduler: that of loop `number`.
      def install(number)
        extend_ruby
        Fiber.set_scheduler(@schedulers[number] = Scheduler.new(number))
      end

      def uninstall
        Fiber.scheduler&.ends
        Fiber.set_scheduler(nil)
      end

      # A fiber that serves requests when it is entered.
      def make
        Fiber.new(blocking: false, **STORAGE) { Native.fiber_body }
      end

      # After each request, on its fiber.
      def clean
        forget_storage unless STORAGE.empty?
      end

      # On its fiber: an alarm of `Scheduler#timeout_after` has come.
      def expired(number)
        Fiber.scheduler.expired(number)
      end

      # Whether the fiber that set `alarm` of loop `number` is inside what it has called.
      def calls?(number, alarm)
        @schedulers[number]&.alarms&.calls?(alarm) || false
      end

      # On the thread of the loop: the fiber that set this alarm has been left for good.
      def forget(alarm)
        Fiber.scheduler&.alarms&.forget(alarm)
      end

      # Those of a request or a fiber of `Fiber.schedule`, when they are first asked for.
      def interrupts
        Interrupts.new
      end

      # On the thread that sees where loops are: `alarm`'s time has come while its request stops loop `number`.
      def late(number, since, alarm)
        error, message = @schedulers[number]&.alarms&.of(alarm)
        Native.fiber_raise(number, since, alarm, error, message) if error
      end

      # Whether the caller is on a fiber that the loop can leave.
      def here?
        Fiber.current_scheduler.is_a?(Scheduler)
      end

      # The first loop of a worker has begun: starts the thread that sees where loops are that have been away for long.
      def watch_calls
        # What a worker has told is not what its child, as the next template, and the workers of that have told.
        @calls = BlockingCalls.new
        Thread.new { @calls.watch }.name = "firebrick: blocking calls"
      end

      # On the thread of loop `number`, which has been away since `since`, when a call has ended.
      def call_seen(number, since, env)
        @calls.see(number, since, Thread.current, env)
      end

      # A call has ended that had stopped loop `number`. Whether it counts.
      def call_blocked(number, since, micros, doubtful, served)
        @calls.ended(number, since, micros, doubtful, served)
      end

      # Runs the block on a thread of its own, for what would stop all fibers of this one, and waits for its result.
      def apart(&block)
        thread = Thread.new(&block)
        thread.report_on_exception = false
        thread.value
      end

      private

      def forget_storage
        return if Fiber.current.storage.nil? || Fiber.current.storage.empty?

        # It warns that it is experimental.
        warns = Warning[:experimental]
        Warning[:experimental] = false
        Fiber.current.storage = nil
      ensure
        Warning[:experimental] = warns unless warns.nil?
      end

      # What Ruby, or a library, would do without asking the scheduler.
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
