# frozen_string_literal: true

module Firebrick
  module Fibers
    # Keeps an app from replacing or removing a thread's scheduler, which the thread's other requests need.
    module Guard
      def set_scheduler(scheduler) # rubocop:disable Naming/AccessorMethodName
        return super unless (own = Fiber.scheduler).is_a?(Scheduler) && !own.ends?
        # Libraries call this when their own scheduler has ended, even if it was refused.
        return if scheduler.nil?
        return own if scheduler.equal?(own)

        raise FiberError, "this thread serves requests with Firebrick's fibers and keeps its scheduler: " \
                          "run the block on a thread of its own, Thread.new { ... }.value"
      end
    end
  end
end
