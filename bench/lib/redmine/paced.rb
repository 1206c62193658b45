# frozen_string_literal: true

require_relative "visitors"

module Bench
  module Redmine
    # Requests of visitors who have logged in, begun at times that do not depend on the server: a request that finds all visitors busy has waited
    # since its time.
    class Paced
      Fetched = Struct.new(:page, :began, :seconds)

      # port:: of the server; count:: visitors; pages:: each comes equally often, in an order of its own; seed:: of the order
      def initialize(port, count, pages, seed)
        @visitors = Array.new(count) { Visitors::Visitor.new(port) }
        @pages = pages
        @random = Random.new(seed)
        @fetched = []
        @lock = Mutex.new
      end

      # Begins `rate` requests a second while the block runs. Returns those that have begun meanwhile, with the time that each took.
      def during(rate)
        due = Thread::Queue.new
        threads = @visitors.map { |visitor| Thread.new { serve(visitor, due) } }
        pacing = Thread.new { pace(rate, due) }
        (threads + [pacing]).each { |thread| thread.report_on_exception = false }
        yield
        pacing.kill.join
        due.close
        threads.each(&:join)
        @lock.synchronize { @fetched.slice!(0..) }
      end

      # Returns the requests a second that the server completes for visitors who do not pause.
      def capacity(seconds)
        finish = now + seconds
        @visitors.map { |visitor| Thread.new { count_until(finish, visitor) } }.sum(&:value) / seconds.to_f
      end

      def finish = @visitors.each(&:finish)

      private

      def count_until(finish, visitor)
        count = 0
        while now < finish
          visitor.fetch(@pages.sample)
          count += 1
        end
        count
      end

      # Even times would let requests meet the same pause again and again.
      def pace(rate, due)
        at = now
        loop do
          shuffled.each do |page|
            at += (0.5 + @random.rand) / rate
            wait = at - now
            sleep wait if wait.positive?
            due << [page, at]
          end
        end
      end

      def shuffled = @pages.shuffle(random: @random)

      def serve(visitor, due)
        while (page, at = due.pop)
          visitor.fetch(page)
          ended = now
          @lock.synchronize { @fetched << Fetched.new(page, at, ended - at) }
        end
      end

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end
