# frozen_string_literal: true

module Firebrick
  module Pure
    # A thread that sees to what others have no time for: sends what waits of bodies whose next chunk is late, and of
    # responses that are held back for the next; calls threads for requests that wait behind one that is not quick; and
    # returns those that wait behind slow ones. It sleeps while there is nothing of it.
    class Watchdog
      # Seconds between two looks: as long a chunk waits for the next.
      LOOK = 0.001
      # Looks without progress after which requests are returned.
      PATIENCE = 10

      # links:: whose held frames it sends
      def initialize(links)
        @links = links
        @lock = Mutex.new
        @bell = ConditionVariable.new
        @responses = []
        @inbox = nil
        @steps = @still = 0
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

      # Requests wait in this inbox, or responses in a link. Cheap while it looks anyway: it stops looking only after it
      # has asked the inbox and the links again, which have locks of their own.
      def look(inbox)
        return if @inbox

        @lock.synchronize do
          @inbox = inbox
          @bell.signal
        end
      end

      private

      def round
        @lock.synchronize { @bell.wait(@lock) while @responses.empty? && @inbox.nil? }
        sleep(LOOK)
        take_responses.each(&:flush_waiting)
        inbox = @inbox
        look_after(inbox) if inbox
      end

      def take_responses
        @lock.synchronize { @responses.tap { @responses = [] } }
      end

      def look_after(inbox)
        @links.each(&:flush)
        check_progress(inbox)
        return unless inbox.settled?

        @inbox = nil
        # It may have been told just before.
        @inbox = inbox unless inbox.settled? && @links.none?(&:waiting?)
      end

      def check_progress(inbox)
        steps = inbox.steps
        @still = steps == @steps ? @still + 1 : 0
        @steps = steps
        inbox.watch
        inbox.hurry if @still.positive?
        inbox.return_stalled if @still >= PATIENCE
      end
    end
  end
end
