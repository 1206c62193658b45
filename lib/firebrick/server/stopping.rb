# frozen_string_literal: true

module Firebrick
  class Server
    # A conversation whose server is to finish its requests and end: how long the front is waited for.
    module Stopping
      # The share of `timeouts.shutdown` in which a front has to reply that it ends. One that does not is stopped, or
      # hangs, and is killed.
      HEARING = 0.6
      # Seconds, before the front has said what `timeouts.shutdown` is.
      SHUTDOWN = 30.0

      private

      # Until something has to happen in any case; nil: for ever.
      def patience
        first = [@killed_by, @ends_by].compact.min
        first && [first - now, 0].max
      end

      def ask_to_stop
        @stopped = true
        unless @ends_by
          @unheard = true
          @ends_by = now + (HEARING * shutdown)
        end
        @control.send_message("stop")
      end

      def hear_of_the_end(verb, argument)
        case verb
        when "stopping" then stopping(Integer(argument))
        when "failed" then @error = Front.error(argument)
        when "exit" then @stopped = @over = true
        end
      end

      # The front has heard that it is to end, and says how long that may take.
      def stopping(milliseconds)
        @unheard = false
        @ends_by = now + (milliseconds / 1000.0) + Front::GRACE
      end

      def shutdown
        @settings&.shutdown || SHUTDOWN
      end
    end
  end
end
