# frozen_string_literal: true

require "firebrick/wire"

module Firebrick
  module Pure
    # A worker's slot of the scoreboard (docs/internals/wire.md).
    class Scoreboard
      include Wire::Slot

      # In a thread's word: the thread serves a request. Bit 63 of a signed number.
      BUSY = -(1 << 63)

      # Writes with `pwrite`. Each call is a memory barrier between the processes, so a count is visible before later
      # reads.
      class Written
        def initialize(file, start, length)
          @file = file
          @start = start
          @file.pwrite("\0" * length, @start)
        end

        def put(offset, number)
          @file.pwrite([number].pack("q<"), @start + offset)
        end

        # Does nothing, because each call is a barrier.
        def fence; end

        def get(offset)
          @file.pread(8, @start + offset).unpack1("q<")
        end

        def close
          @file.close
        end
      end

      # The slot of a worker that cannot receive the scoreboard; the front keeps it.
      class Kept
        def put(_offset, _number); end

        def fence; end

        # Returns that no request is withdrawn.
        def get(_offset)
          -1
        end

        def close; end
      end

      # Maps the slot where possible, which saves system calls.
      def self.memory(file, start, length)
        return Kept.new if file.nil?
        return Written.new(file, start, length) unless RUBY_ENGINE == "jruby"

        require "firebrick/pure/mapped"
        Mapped.new(file, start, length)
      rescue StandardError, LoadError
        Written.new(file, start, length)
      end

      # file:: the scoreboard, open for reading and writing; nil where the front writes it
      def initialize(file, index, slot_len, links)
        @slot = Scoreboard.memory(file, index * slot_len, slot_len)
        @threads_at = HEADER + (LINK * links)
        @lock = Mutex.new
        @requests = @failures = @threads = 0
      end

      def thread_started
        @lock.synchronize { @slot.put(THREADS, @threads += 1) }
      end

      # Sets how many requests of a link have been taken up or discarded. Returns whether the front has withdrawn the
      # last of them.
      def passed(link, count)
        at = HEADER + (LINK * link)
        @slot.put(at, count)
        @slot.fence
        @slot.get(at + 8) >= count
      end

      def begin(thread, link, id, now_us)
        # In this order, so that a request is never seen with the time of the previous one.
        @slot.put(@threads_at + (THREAD * thread) + 8, now_us)
        @slot.fence
        @slot.put(@threads_at + (THREAD * thread), BUSY | (link << 32) | id)
      end

      # Records that the thread has finished its request.
      def idle(thread)
        @slot.put(@threads_at + (THREAD * thread), 0)
      end

      # Counts a request. The caller must hold a lock.
      def finished(failed)
        @slot.put(FAILURES, @failures += 1) if failed
        @slot.put(REQUESTS, @requests += 1)
      end

      # Returns the number of the front's order to take a profile; 0 if there is none.
      def ordered_profile
        (@slot.get(PROFILE) >> 32) & 0xffff_ffff
      end

      def close
        @slot.close
      end
    end
  end
end
