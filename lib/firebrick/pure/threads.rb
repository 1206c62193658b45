# frozen_string_literal: true

module Firebrick
  module Pure
    # The threads that serve: as many as the work needs, between two limits. One that the app kills is replaced.
    class Threads
      # fewest, most:: how many there are
      # body:: what each does, given its number, until it is over
      def initialize(fewest, most, scoreboard, over, &body)
        @fewest = fewest
        @most = most
        @scoreboard = scoreboard
        @over = over
        @body = body
        @lock = Mutex.new
        @threads = []
      end

      def start
        @fewest.times { grow }
      end

      # One more, if there may be.
      def grow
        @lock.synchronize { @threads << run(@threads.length) if @threads.length < @most }
      end

      # Waits until all have ended.
      def join
        @threads.each { |thread| thread.join unless thread.equal?(Thread.current) }
      end

      private

      def run(number)
        @scoreboard.thread_started
        Thread.new do
          Thread.current.report_on_exception = false
          @body.call(number)
        ensure
          @lock.synchronize { @threads[number] = run(number) } unless @over.call
        end
      end
    end
  end
end
