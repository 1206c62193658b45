# frozen_string_literal: true

module Firebrick
  module Fibers
    # Fibers that wait for a descriptor which is closed: the system reports nothing, and Ruby tells the thread, not
    # the fiber. So they are told here, and have let go of it before it is closed.
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
