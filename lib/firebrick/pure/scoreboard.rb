# frozen_string_literal: true

module Firebrick
  module Pure
    # A worker's slot of the scoreboard (docs/wire.md), written with `pwrite`: each call is a barrier between the
    # processes, so a count is seen before what is read after it.
    class Scoreboard
      REQUESTS = 0
      STARTED = 16
      THREADS = 64

      # file:: the scoreboard, open for both directions
      def initialize(file, index, slot_len, threads_max)
        @file = file
        @start = index * slot_len
        @links = THREADS + (16 * threads_max)
        @lock = Mutex.new
        @requests = @failures = @threads = 0
        @file.pwrite("\0" * slot_len, @start)
      end

      def thread_started
        @lock.synchronize { put(STARTED, @threads += 1) }
      end

      # Sets how many requests of a link have been taken up or discarded. Whether the front has withdrawn the last of
      # them.
      def passed(link, count)
        at = @links + (16 * link)
        put(at, count)
        @file.pread(8, @start + at + 8).unpack1("Q<") >= count
      end

      def begin(thread, link, id, now_us)
        # In this order: a request is never seen with the time of the one before it.
        put(THREADS + (16 * thread) + 8, now_us)
        put(THREADS + (16 * thread), (1 << 63) | (link << 32) | id)
      end

      def finish(thread, failed)
        put(THREADS + (16 * thread), 0)
        @lock.synchronize do
          @failures += 1 if failed
          @file.pwrite([@requests += 1, @failures].pack("Q<Q<"), @start + REQUESTS)
        end
      end

      def close
        @file.close
      end

      private

      def put(offset, value)
        @file.pwrite([value].pack("Q<"), @start + offset)
      end
    end
  end
end
