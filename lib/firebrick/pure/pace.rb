# frozen_string_literal: true

require "etc"

module Firebrick
  module Pure
    # Whether a request needs a thread of its own at once. Calling a thread costs more than a quick request waits behind
    # another, so while requests are quick and keep the processors busy, no more threads are called than there are
    # processors: those that are awake take one request after the other.
    #
    # Contract: called under the inbox's lock, but for #quick?, which is a hint.
    class Pace
      # The mean up to which requests are quick, in microseconds; what a request counts for at most.
      QUICK_US = 500
      MOST_US = 10_000
      # How much the mean has of the last request: 1 / 2^4.
      SHARE = 4
      # Seconds between two looks at the processors' time; how much of it a worker has used that does not wait.
      LOOK = 0.05
      BUSY = 0.6
      # Seconds for which threads are called for each request, once it turned out that requests wait for something.
      GENEROUS = 1.0

      def initialize(processors = Etc.nprocessors)
        @processors = processors
        @mean_us = MOST_US
        @generous_until = 0
        @looked_at = nil
      end

      # A request has been served.
      def took(microseconds)
        @mean_us += ((microseconds < MOST_US ? microseconds : MOST_US) - @mean_us) >> SHARE
      end

      def quick?
        @mean_us < QUICK_US
      end

      # Whether a thread is called, given how many are awake.
      def call?(awake)
        awake < @processors || !quick? || @generous_until != 0
      end

      # A request was not quick.
      def slow_down
        @mean_us = MOST_US
      end

      # Every now and then, while requests wait.
      def watch
        now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
        @generous_until = 0 if @generous_until < now
        return if @looked_at && now - @looked_at < LOOK

        used = Process.times.then { |times| times.utime + times.stime }
        # A look long ago tells nothing of now.
        if @looked_at && now - @looked_at < 4 * LOOK && used - @used < BUSY * @processors * (now - @looked_at)
          @generous_until = now + GENEROUS
        end
        @looked_at = now
        @used = used
      end
    end
  end
end
