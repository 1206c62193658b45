# frozen_string_literal: true

module Firebrick
  module StatementTimeout
    # The end of a request's time.
    class Deadline
      def initialize(seconds)
        @at = now + seconds
        @runs = true
      end

      # Threads that the app has started may outlive the request, so they look here.
      def runs?
        @runs
      end

      def over
        @runs = false
      end

      # Gives the request at least so many seconds from now.
      def extend(seconds)
        @at = [@at, now + seconds].max
      end

      # Returns the milliseconds that are left, at least 1: 0 would be no limit.
      def left
        [((@at - now) * 1000).floor, 1].max
      end

      private

      def now
        Process.clock_gettime(Process::CLOCK_MONOTONIC)
      end
    end
  end
end
