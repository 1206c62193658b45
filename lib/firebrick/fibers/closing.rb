# frozen_string_literal: true

module Firebrick
  module Fibers
    # Fibers that wait for a descriptor which another one closes would wait for ever: the system reports nothing.
    module Closing
      def close
        Native.fiber_closes(fileno) unless closed?
        super
      end
    end
  end
end
