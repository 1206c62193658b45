# frozen_string_literal: true

module Firebrick
  module Pure
    # A thread that sees to what others have no time for: sends what waits of bodies whose next chunk is late, and
    # returns requests that wait behind slow ones. It sleeps while there is neither.
    class Watchdog
      # Seconds that a chunk waits for the next.
      GATHER = 0.001
      # Seconds without progress after which requests are returned.
      PATIENCE = 0.01

      def initialize
        @lock = Mutex.new
        @bell = ConditionVariable.new
        @responses = []
        @inbox = nil
      end

      def start
        Thread.new { loop { round } }
      end

      # A chunk of this response waits.
      def gathered(response)
        @lock.synchronize do
          @responses << response
          @bell.signal
        end
      end

      # Requests in this inbox wait while all threads are busy.
      def look(inbox)
        @lock.synchronize do
          @inbox = inbox
          @bell.signal
        end
      end

      private

      def round
        @lock.synchronize { @bell.wait(@lock) while @responses.empty? && @inbox.nil? }
        sleep(@responses.empty? ? PATIENCE : GATHER)
        responses, inbox = take
        responses.each(&:flush_waiting)
        look(inbox) if inbox && !inbox.return_stalled(PATIENCE)
      end

      def take
        @lock.synchronize do
          taken = [@responses, @inbox]
          @responses = []
          @inbox = nil
          taken
        end
      end
    end
  end
end
