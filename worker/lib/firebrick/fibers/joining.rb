# frozen_string_literal: true

module Firebrick
  module Fibers
    # `Thread#join` with a limit. With a scheduler, Ruby 3.1 starts the wait again when the limit is over.
    module Joining
      def join(limit = nil)
        return super unless limit && Fibers.here?

        Fibers.apart { super(limit) }
      end
    end
  end
end
