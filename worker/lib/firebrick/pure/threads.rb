# frozen_string_literal: true

module Firebrick
  module Pure
    # The serving threads: as many as the work needs, between two limits. A thread that the app kills is replaced.
    class Threads
      # fewest, most:: the limits of their number
      # body:: the body of each thread, called with its number; returns when the thread is to end
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

      # Starts one more thread, if the limit allows it.
      def grow
        @lock.synchronize { @threads << run(@threads.length) if @threads.length < @most }
      end

      # Waits until all threads have ended.
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
