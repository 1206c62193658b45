# frozen_string_literal: true

module Firebrick
  module Fibers
    # `Async { }` brings a scheduler of its own, and so gets a thread of its own; the request's fiber waits for it.
    module Apart
      def Async(*arguments, **options, &block) # rubocop:disable Naming/MethodName
        return super unless Fibers.here?

        Fibers.apart { super(*arguments, **options, &block) }
      end

      def Sync(*arguments, **options, &block) # rubocop:disable Naming/MethodName
        return super unless Fibers.here?

        Fibers.apart { super(*arguments, **options, &block) }
      end
    end
  end
end
