# frozen_string_literal: true

module Firebrick
  module Fibers
    # Closes a descriptor for which fibers wait. The system reports nothing to them, and Ruby notifies the thread, not
    # the fiber. So this wakes the fibers and makes them release the descriptor before it is closed.
    module Closing
      def close
        let_go if !closed? && Native.fiber_closes(fileno)
        super
      end

      private

      def let_go
        Fibers.here? ? Native.fiber_pause : sleep(0.005)
      end
    end
  end
end
