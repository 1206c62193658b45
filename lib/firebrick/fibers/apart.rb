# frozen_string_literal: true

module Firebrick
  module Fibers
    # `Async { }` brings a scheduler of its own, and so gets a thread of its own; the request's fiber waits for it.
    module Apart
      %i[Async Sync].each do |name|
        define_method(name) do |*arguments, **options, &block|
          Fibers.here? ? Fibers.apart { super(*arguments, **options, &block) } : super(*arguments, **options, &block)
        end
      end
    end
  end
end
