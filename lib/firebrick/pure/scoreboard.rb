# frozen_string_literal: true

module Firebrick
  module Pure
    # A worker's slot of the scoreboard (docs/wire.md).
    class Scoreboard
      REQUESTS = 0
      STARTED = 16
      THREADS = 64
      # Of a thread's word: it serves a request. Bit 63 of a number with a sign.
      BUSY = -(1 << 63)

      # Written with `pwrite`: each call is a barrier between the processes, so a count is seen before what is read
      # after it.
      class Written
        def initialize(file, start, length)
          @file = file
          @start = start
          @file.pwrite("\0" * length, @start)
        end

        def put(offset, number)
          @file.pwrite([number].pack("q<"), @start + offset)
        end

        # Each call is one.
        def fence; end

        def get(offset)
          @file.pread(8, @start + offset).unpack1("q<")
        end

        def close
          @file.close
        end
      end

      # The front keeps the scoreboard of a worker that it cannot send it to.
      class Kept
        def put(_offset, _number); end

        def fence; end

        # Nothing that was sent is withdrawn.
        def get(_offset)
          -1
        end

        def close; end
      end

      # Mapped where that is possible: without system calls.
      def self.memory(file, start, length)
        return Kept.new if file.nil?
        return Written.new(file, start, length) unless RUBY_ENGINE == "jruby"

        require "firebrick/pure/mapped"
        Mapped.new(file, start, length)
      rescue StandardError, LoadError
        Written.new(file, start, length)
      end

      # file:: the scoreboard, open for both directions; nil where the front writes it
      def initialize(file, index, slot_len, threads_max)
        @slot = Scoreboard.memory(file, index * slot_len, slot_len)
        @links = THREADS + (16 * threads_max)
        @lock = Mutex.new
        @requests = @failures = @threads = 0
      end

      def thread_started
        @lock.synchronize { @slot.put(STARTED, @threads += 1) }
      end

      # Sets how many requests of a link have been taken up or discarded. Whether the front has withdrawn the last of
      # them.
      def passed(link, count)
        at = @links + (16 * link)
        @slot.put(at, count)
        @slot.fence
        @slot.get(at + 8) >= count
      end

      def begin(thread, link, id, now_us)
        # In this order: a request is never seen with the time of the one before it.
        @slot.put(THREADS + (16 * thread) + 8, now_us)
        @slot.fence
        @slot.put(THREADS + (16 * thread), BUSY | (link << 32) | id)
      end

      # The thread is done with its request.
      def idle(thread)
        @slot.put(THREADS + (16 * thread), 0)
      end

      # Counts a request. The caller has a lock.
      def finished(failed)
        @slot.put(REQUESTS + 8, @failures += 1) if failed
        @slot.put(REQUESTS, @requests += 1)
      end

      def close
        @slot.close
      end
    end
  end
end
