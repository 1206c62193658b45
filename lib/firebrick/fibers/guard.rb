# frozen_string_literal: true

module Firebrick
  module Fibers
    # A thread whose scheduler an app has replaced could not go on with the other requests.
    module Guard
      def set_scheduler(scheduler) # rubocop:disable Naming/AccessorMethodName
        return super unless scheduler && Fiber.scheduler.is_a?(Scheduler)

        raise FiberError, "this thread serves requests with Firebrick's fibers and keeps its scheduler: " \
                          "run the block on a thread of its own, Thread.new { ... }.value"
      end
    end
  end
end
