# frozen_string_literal: true

require "etc"

module Firebrick
  module Pure
    # Decides whether a request needs its own thread at once. Calling a thread costs more than a quick request waits
    # behind another. So while requests are quick and keep the processors busy, at most one thread per processor is
    # called, and the awake threads take the requests one after another.
    #
    # Contract: call it under the inbox's lock, except #quick?, which is a hint.
    class Pace
      # The mean duration up to which requests are quick, and the cap of a single duration, in microseconds.
      QUICK_US = 500
      MOST_US = 10_000
      # The weight of the last request in the mean: 1 / 2^4.
      SHARE = 4
      # Seconds between two measurements of processor time; the share of it that a worker uses when its requests do not
      # wait.
      LOOK = 0.05
      BUSY = 0.6
      # Seconds for which a thread is called for each request, after requests were found to wait for something.
      GENEROUS = 1.0

      def initialize(processors = Etc.nprocessors)
        @processors = processors
        @mean_us = MOST_US
        @generous_until = 0
        @looked_at = nil
      end

      # Records the duration of a request.
      def took(microseconds)
        @mean_us += ((microseconds < MOST_US ? microseconds : MOST_US) - @mean_us) >> SHARE
      end

      def quick?
        @mean_us < QUICK_US
      end

      # Returns whether to call a thread, given the number of awake ones.
      def call?(awake)
        awake < @processors || !quick? || @generous_until != 0
      end

      # Records that a request was not quick.
      def slow_down
        @mean_us = MOST_US
      end

      # Measures the use of the processors. Called repeatedly while requests wait.
      def watch
        now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
        @generous_until = 0 if @generous_until < now
        return if @looked_at && now - @looked_at < LOOK

        used = Process.times.then { |times| times.utime + times.stime }
        # A measurement from long ago says nothing about now.
        if @looked_at && now - @looked_at < 4 * LOOK && used - @used < BUSY * @processors * (now - @looked_at)
          @generous_until = now + GENEROUS
        end
        @looked_at = now
        @used = used
      end
    end
  end
end
