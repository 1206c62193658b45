# frozen_string_literal: true

module Firebrick
  module Fibers
    # `IO.select` for Ruby 3.1, which does not call the scheduler for it.
    module Select
      def select(reads, writes = nil, errors = nil, timeout = nil)
        return super if timeout&.zero? || !Fibers.here?

        Fiber.current_scheduler.io_select(reads, writes, errors, timeout)
      end
    end
  end
end
