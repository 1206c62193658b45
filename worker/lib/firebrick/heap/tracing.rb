# frozen_string_literal: true

module Firebrick
  class Heap
    # Records where objects are allocated, and by which route, for a time: a worker whose observer never comes back must
    # not stay slow. Meanwhile the collector does not compact the heap by itself, because nothing would be known of the
    # objects that it moves.
    module Tracing
      class << self
        # Records for so many seconds from now; 0: no longer.
        def for(seconds)
          @end&.kill
          @end = nil
          was = on?
          @on = seconds.positive?
          return stop if was && !@on

          start if @on && !was
          @end = stop_after(seconds) if @on
        end

        def on?
          @on ? true : false
        end

        # Ends the recording in a forked child, where the thread that would end it does not run.
        def forked
          return unless on?

          @on = false
          @end = nil
          stop_recording
        end

        private

        def start
          @compacts = GC.respond_to?(:auto_compact) && GC.auto_compact
          GC.auto_compact = false if @compacts
          ObjectSpace.trace_object_allocations_start
          Native.record_allocations(true)
        end

        def stop
          stop_recording
          ObjectSpace.trace_object_allocations_clear
        end

        def stop_recording
          Native.record_allocations(false)
          ObjectSpace.trace_object_allocations_stop
          GC.auto_compact = true if @compacts
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
