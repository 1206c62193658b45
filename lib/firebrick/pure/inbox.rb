# frozen_string_literal: true

require "firebrick/pure/frames"
require "firebrick/pure/pace"

module Firebrick
  module Pure
    # The requests that have come and not been taken up, of all links, and what a serving thread does next.
    #
    # Contract: taking a request up and returning it exclude each other. A thread that rests has a bell of its own,
    # which is rung without the lock: who hears it does not wait for who has rung it. The last that came to rest is the
    # first to be called. A request for which no thread is called (Pace says when) is taken up by one that is awake, and
    # the watchdog calls another as soon as that takes long.
    class Inbox
      # Told once when nothing is left to be done.
      def initialize(scoreboard, watchdog, &finished)
        @scoreboard = scoreboard
        @watchdog = watchdog
        @finish = finished
        @lock = Mutex.new
        @jobs = []
        @pace = Pace.new
        # How many threads there are; bells of those that rest; of those, the ones that have not been called.
        @members = 0
        @resting = {}.compare_by_identity
        @uncalled = []
        @active = 0
        @draining = @collect = @finished = @stalled = false
        @steps = 0
      end

      # A thread begins to serve. Its bell, a Queue.
      def enter
        @lock.synchronize { @members += 1 }
        Queue.new
      end

      # The thread with this bell has ended, however it came.
      def leave(bell)
        @lock.synchronize do
          @members -= 1
          get_up(bell)
        end
      end

      # Adds a request. Whether another thread could serve it at once.
      def put(job)
        bell = late = nil
        @lock.synchronize do
          next discard(job) if job.link.closed

          @jobs << job
          bell = @uncalled.pop if @pace.call?(@members - @uncalled.length)
          late = @resting.length < @jobs.length
          @watchdog.look(self) unless bell
        end
        bell&.push(nil)
        late
      end

      # The next request; :collect when garbage is to be collected; nil when the thread ends. Yields before it waits.
      # bell:: the calling thread's own
      def take(bell)
        until (step = @lock.synchronize { choose(bell) })
          yield
          return if @finished

          bell.pop
        end
        step
      end

      # Whether the calling thread will take up the next request at once, and finish that soon: what it has to send may
      # go with the next response.
      def goes_on?
        !@jobs.empty? && @pace.quick?
      end

      # What #take has returned is done.
      # exchange:: the one that was served, if it was a request
      def done(exchange)
        @lock.synchronize do
          @active -= 1
          count(exchange) if exchange
          progress
          # Otherwise the other threads would wake up after each request, for nothing.
          call_all if @active.zero? && (@draining || @collect)
        end
      end

      # No request will come.
      def drain
        wake { @draining = true }
      end

      # Garbage is to be collected when nothing is being served.
      def collect
        wake { @collect = true }
      end

      # The client of a request has gone. Whether it has not been taken up.
      def abort(link, id)
        @lock.synchronize do
          job = @jobs.find { |one| one.link.equal?(link) && one.id == id }
          job.gone = true if job
          !job.nil?
        end
      end

      # RESUME: what comes now is to be served.
      def resume(link)
        @lock.synchronize do
          link.closed = false
          link.send_frame(Frames.frame(Frames::RESUMED))
        end
      end

      # How often something has been taken up or done: who asks twice knows whether anything happens.
      def steps
        @lock.synchronize { @steps }
      end

      # Nothing has been taken up or done for a moment: calls threads for what waits.
      def hurry
        @lock.synchronize do
          @pace.slow_down unless @jobs.empty? || @uncalled.empty?
          @jobs.length.times { @uncalled.pop&.push(nil) }
        end
      end

      # Watches whether the threads that are awake keep the processors busy.
      def watch
        @lock.synchronize { @pace.watch }
      end

      # Nothing has been taken up or done for long: returns the requests that wait.
      def return_stalled
        @lock.synchronize do
          next if @jobs.empty? || @stalled || @finished

          @jobs.map(&:link).uniq.each { |link| return_from(link, link.passed) }
          # What comes now has been sent by a front that knows.
          @stalled = true
        end
      end

      # Whether nothing waits that could be returned.
      def settled?
        @lock.synchronize { @jobs.empty? || @finished || (@stalled && @uncalled.empty?) }
      end

      # Whether nothing is being done that the end of the links would cut short.
      def over?
        @finished || (@draining && @active.zero? && @jobs.empty?)
      end

      def finished?
        @finished
      end

      private

      def wake
        @lock.synchronize do
          yield
          call_all
        end
      end

      def call_all
        @uncalled.each { |bell| bell.push(nil) }
        @uncalled.clear
      end

      # What the thread does next; nil: it waits for its bell, or ends.
      def choose(bell)
        get_up(bell)
        return if @finished

        step = next_job || (collection if @active.zero?)
        return begun(step) if step

        lie_down(bell) unless @finished
      end

      def next_job
        while (job = @jobs.shift)
          withdrawn = pass(job.link)
          return job unless withdrawn

          # The front may have seen that it was taken up: it learns that it was not served.
          return_from(job.link, job.link.passed - 1)
          job.discard
        end
      end

      def collection
        return finish if @draining

        :collect.tap { @collect = false } if @collect
      end

      def finish
        @finished = true
        call_all
        @finish.call
        nil
      end

      def begun(step)
        @active += 1
        progress
        @watchdog.look(self) unless @jobs.empty?
        step
      end

      def count(exchange)
        @scoreboard.finished(exchange.failed?)
        took_us = exchange.response.took_us
        @pace.took(took_us) if took_us
      end

      def progress
        @steps += 1
        @stalled = false
      end

      def lie_down(bell)
        bell.clear
        @resting[bell] = true
        @uncalled.push(bell)
        nil
      end

      # It may have been interrupted before it was called.
      def get_up(bell)
        @uncalled.delete(bell) if @resting.delete(bell)
      end

      # Counts one more. Whether the front has taken it back.
      def pass(link)
        @scoreboard.passed(link.number, link.passed += 1)
      end

      # RETURNED, before any of them is counted.
      def return_from(link, number)
        return if link.closed

        link.closed = true
        link.send_frame(Frames.frame(Frames::RETURNED, 0, [number].pack("Q<")))
        mine, @jobs = @jobs.partition { |job| job.link.equal?(link) }
        mine.each { |job| discard(job) }
      end

      def discard(job)
        pass(job.link)
        job.discard
        true
      end
    end
  end
end
