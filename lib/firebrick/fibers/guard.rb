# frozen_string_literal: true

module Firebrick
  module Fibers
    # A thread whose scheduler an app has replaced, or taken away, could not go on with the other requests.
    module Guard
      def set_scheduler(scheduler) # rubocop:disable Naming/AccessorMethodName
        return super unless (own = Fiber.scheduler).is_a?(Scheduler) && !own.ends?
        # What a library does when its own has ended, also if it was refused.
        return if scheduler.nil?
        return own if scheduler.equal?(own)

        raise FiberError, "this thread serves requests with Firebrick's fibers and keeps its scheduler: " \
                          "run the block on a thread of its own, Thread.new { ... }.value"
      end
    end
  end
end
