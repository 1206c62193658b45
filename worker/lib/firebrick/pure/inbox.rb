# frozen_string_literal: true

require "firebrick/pure/frames"
require "firebrick/pure/pace"

module Firebrick
  module Pure
    # The requests of all links that have not been taken up. Decides the next action of each serving thread.
    #
    # Contract: taking a request up and returning it exclude each other. Each resting thread has its own bell, which is
    # rung without the lock, so that the woken thread does not wait for the one that rang. The thread that came to rest
    # last is called first. A request for which no thread is called (Pace decides) is taken up by a thread that is
    # awake; the watchdog calls another thread as soon as that takes long.
    class Inbox
      # The block is called once, when there is nothing left to do.
      def initialize(scoreboard, watchdog, &finished)
        @scoreboard = scoreboard
        @watchdog = watchdog
        @finish = finished
        @lock = Mutex.new
        @jobs = []
        @pace = Pace.new
        # The number of threads; the bells of the resting ones; those of them that have not been called.
        @members = 0
        @resting = {}.compare_by_identity
        @uncalled = []
        @active = 0
        @draining = @collect = @finished = @stalled = false
        @steps = 0
      end

      # Registers a thread that begins to serve. Returns its bell, a Queue.
      def enter
        @lock.synchronize { @members += 1 }
        Queue.new
      end

      # Removes the thread with this bell, which has ended, for whatever reason.
      def leave(bell)
        @lock.synchronize do
          @members -= 1
          get_up(bell)
        end
      end

      # Adds a request. Returns whether another thread could serve it at once.
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

      # Returns the next request; :collect when a collection is to run; nil when the thread ends. Yields before it
      # waits.
      # bell:: the calling thread's own
      def take(bell)
        until (step = @lock.synchronize { choose(bell) })
          yield
          return if @finished

          bell.pop
        end
        step
      end

      # Returns whether the calling thread will take up the next request at once and finish it soon, so that its unsent
      # frames can go with the next response.
      def goes_on?
        !@jobs.empty? && @pace.quick?
      end

      # Records that the action returned by #take is done.
      # exchange:: the one that was served, if it was a request
      def done(exchange)
        @lock.synchronize do
          @active -= 1
          count(exchange) if exchange
          progress
          # Without the condition the other threads would wake up after each request, for nothing.
          call_all if @active.zero? && (@draining || @collect)
        end
      end

      # No more requests will come.
      def drain
        wake { @draining = true }
      end

      # A collection is to run when no request is being served.
      def collect
        wake { @collect = true }
      end

      # Marks a request whose client has disconnected. Returns whether it was still waiting.
      def abort(link, id)
        @lock.synchronize do
          job = @jobs.find { |one| one.link.equal?(link) && one.id == id }
          job.gone = true if job
          !job.nil?
        end
      end

      # RESUME: new requests are to be served again.
      def resume(link)
        @lock.synchronize do
          link.closed = false
          link.send_frame(Frames.frame(Wire::Frame::RESUMED))
        end
      end

      # Returns a counter of requests taken up or done. Comparing two values shows whether there is progress.
      def steps
        @lock.synchronize { @steps }
      end

      # Calls threads for waiting requests, because nothing has been taken up or done for a moment.
      def hurry
        @lock.synchronize do
          @pace.slow_down unless @jobs.empty? || @uncalled.empty?
          @jobs.length.times { @uncalled.pop&.push(nil) }
        end
      end

      # Measures whether the awake threads keep the processors busy.
      def watch
        @lock.synchronize { @pace.watch }
      end

      # Returns the waiting requests to the front, because nothing has been taken up or done for long.
      def return_stalled
        @lock.synchronize do
          next if @jobs.empty? || @stalled || @finished

          @jobs.map(&:link).uniq.each { |link| return_from(link, link.passed) }
          # The front sends further requests knowing that.
          @stalled = true
        end
      end

      # Returns whether there is no waiting request that could be returned.
      def settled?
        @lock.synchronize { @jobs.empty? || @finished || (@stalled && @uncalled.empty?) }
      end

      # Returns whether the links can end without cutting work short.
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

      # Returns the thread's next action; nil: it waits for its bell, or ends.
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

          # The front may have seen the request taken up, and must learn that it was not served.
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

      # Removes the thread from the resting ones. It may have been interrupted before it was called.
      def get_up(bell)
        @uncalled.delete(bell) if @resting.delete(bell)
      end

      # Counts one more request. Returns whether the front has withdrawn it.
      def pass(link)
        @scoreboard.passed(link.number, link.passed += 1)
      end

      # Sends RETURNED, before any of the returned requests is counted.
      def return_from(link, number)
        return if link.closed

        link.closed = true
        link.send_frame(Frames.frame(Wire::Frame::RETURNED, 0, [number].pack("Q<")))
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
