# frozen_string_literal: true

module Firebrick
  module Fibers
    # `Thread#join` with a limit, which in Ruby 3.1 begins again when the limit is over, if there is a scheduler.
    module Joining
      def join(limit = nil)
        return super unless limit && Fibers.here?

        Fibers.apart { super(limit) }
      end
    end
  end
end
