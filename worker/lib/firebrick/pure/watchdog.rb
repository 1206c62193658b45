# frozen_string_literal: true

module Firebrick
  module Pure
    # A thread that works while the serving threads are busy. It sends the waiting bytes of bodies whose next chunk is
    # late, and responses that are held back for the next one; calls threads for requests that wait behind one that is
    # not quick; and returns requests that wait behind slow ones. It sleeps while there is nothing to do.
    class Watchdog
      # Seconds between two checks, which is how long a chunk waits for the next one.
      LOOK = 0.001
      # Checks without progress after which requests are returned.
      PATIENCE = 10

      # links:: the links whose held frames it sends
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

      # Registers a response with a waiting chunk.
      def gathered(response)
        @lock.synchronize do
          @responses << response
          @bell.signal
        end
      end

      # Registers an inbox in which requests wait, or a response in a link. Cheap while the watchdog runs anyway: it
      # stops only after it has checked the inbox and the links, which have their own locks, once more.
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
        # A frame or request may have come just before.
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
