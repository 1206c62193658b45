# frozen_string_literal: true

module Firebrick
  class Heap
    # Records where objects are allocated, for a time: a worker whose observer never comes back must not stay slow.
    module Tracing
      class << self
        # Records for so many seconds from now; 0: no longer.
        def for(seconds)
          @end&.kill
          @end = nil
          was = on?
          @on = seconds.positive?
          return stop if was && !@on

          ObjectSpace.trace_object_allocations_start if @on && !was
          @end = stop_after(seconds) if @on
        end

        def on?
          @on ? true : false
        end

        private

        def stop
          ObjectSpace.trace_object_allocations_stop
          ObjectSpace.trace_object_allocations_clear
        end

        def stop_after(seconds)
          Thread.new do
            sleep(seconds)
            @end = nil
            self.for(0)
          end
        end
      end
    end
  end
end
