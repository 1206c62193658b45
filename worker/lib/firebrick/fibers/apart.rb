# frozen_string_literal: true

module Firebrick
  module Fibers
    # `Async { }` installs its own scheduler, so it gets its own thread; the request's fiber waits for it.
    module Apart
      %i[Async Sync].each do |name|
        define_method(name) do |*arguments, **options, &block|
          Fibers.here? ? Fibers.apart { super(*arguments, **options, &block) } : super(*arguments, **options, &block)
        end
      end
    end
  end
end
