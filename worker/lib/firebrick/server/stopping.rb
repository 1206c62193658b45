# frozen_string_literal: true

module Firebrick
  class Server
    # A conversation whose server is to finish its requests and end: the time that it waits for the front.
    module Stopping
      # The share of `timeouts.shutdown` within which a front has to reply that it is ending. A front that does not
      # reply is suspended or hangs, and is killed.
      HEARING = 0.6
      # Seconds, until the front has reported `timeouts.shutdown`.
      SHUTDOWN = 30.0

      private

      # Returns the seconds until the next deadline; nil: none.
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
        @control.send_message(Wire::Report::STOP)
      end

      def hear_of_the_end(verb, argument)
        case verb
        when Wire::Order::STOPPING then stopping(Integer(argument))
        when Wire::Order::FAILED then @error = Front.error(argument)
        when Wire::Order::EXIT then @stopped = @over = true
        end
      end

      # Records the front's reply, with the time that its end may take.
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
