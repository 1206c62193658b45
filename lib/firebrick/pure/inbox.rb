# frozen_string_literal: true

require "firebrick/pure/frames"

module Firebrick
  module Pure
    # The requests that have come and not been taken up, of all links, and what a serving thread does next.
    #
    # Contract: taking a request up and returning it exclude each other. A thread that rests has a bell of its own,
    # which is rung without the lock: who hears it does not wait for who has rung it. The last that came to rest is the
    # first to be called.
    class Inbox
      # Told once when nothing is left to be done.
      def initialize(scoreboard, watchdog, &finished)
        @scoreboard = scoreboard
        @watchdog = watchdog
        @finish = finished
        @lock = Mutex.new
        @jobs = []
        # Bells of the threads that rest; of those, the ones that have not been called.
        @resting = {}.compare_by_identity
        @uncalled = []
        @active = 0
        @draining = @collect = @finished = false
        progress
      end

      # Adds a request. Whether another thread could serve it at once.
      def put(job)
        bell = late = nil
        @lock.synchronize do
          next discard(job) if job.link.closed

          @jobs << job
          bell = @uncalled.pop
          late = @resting.length < @jobs.length
        end
        bell&.push(nil)
        @watchdog.look(self) if late
        late
      end

      # The next request; :collect when garbage is to be collected; nil when the thread ends.
      # bell:: a Queue, the calling thread's own
      def take(bell)
        until (step = @lock.synchronize { get_up_and_choose(bell) })
          return if @finished

          bell.pop
        end
        step
      end

      # The thread with this bell has ended, however it came.
      def leave(bell)
        @lock.synchronize { get_up(bell) }
      end

      # What #take has returned is done.
      def done
        @lock.synchronize do
          @active -= 1
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

      # Returns requests that have waited so long. Whether there is nothing more to look at.
      def return_stalled(patience)
        @lock.synchronize do
          return true if @jobs.empty? || @stalled || @finished
          return false if now - @progress < patience

          @jobs.map(&:link).uniq.each { |link| return_from(link, link.passed) }
          # What comes now has been sent by a front that knows.
          @stalled = true
        end
      end

      # Whether nothing is being done that the end of the links would cut short.
      def over?
        @finished || (@draining && @active.zero? && @jobs.empty?)
      end

      def finished?
        @finished
      end

      private

      def now
        Process.clock_gettime(Process::CLOCK_MONOTONIC)
      end

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
      def get_up_and_choose(bell)
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

      def progress
        @progress = now
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
