# frozen_string_literal: true

require "socket"

module Firebrick
  module Fibers
    # The scheduler of a thread. Ruby calls it, on the fiber concerned, instead of blocking the thread. The waits
    # themselves are native.
    #
    # There is no `io_write`, and `io_read` only waits and leaves the read to Ruby (`Native.fiber_reads`): their
    # arguments change between versions of Ruby, and `io_wait` is enough for sockets and pipes.
    class Scheduler
      # Ruby calls `io_select` since 3.2; before, `Fibers::Select` stands in for it.
      ASKED_TO_SELECT = RUBY_VERSION >= "3.2"
      # Before Ruby 4.0 each `IO#close` walks a list of all waiting reads.
      READS = RUBY_VERSION < "4.0"
      # The largest number of descriptors that one wait handles without a thread.
      MOST = 16

      def initialize(number)
        @number = number
        @alarms = Alarms.new
        @ends = false
      end

      attr_reader :alarms

      # Returns whether its loop is about to end. Until then the thread keeps the scheduler.
      def ends? = @ends

      def ends
        @ends = true
      end

      Native.fiber_reads(self) if READS

      def io_wait(io, events, timeout = nil)
        Native.fiber_io(io.fileno, events, limit(timeout))
      end

      def kernel_sleep(duration = nil)
        Native.fiber_sleep(limit(duration))
      end

      def block(_blocker, timeout = nil)
        Native.fiber_block(limit(timeout))
      end

      def unblock(_blocker, fiber)
        Native.fiber_unblock(@number, fiber)
      end

      # `Timeout.timeout`: raises at once if the block waits, even in a fiber that it has resumed; otherwise when it
      # next waits or is pre-empted.
      def timeout_after(duration, error, message, &block)
        Interrupts.here.alarm(micros(duration), error) do |number|
          next Alarms.by_thread(duration, error, message, &block) unless number

          @alarms.during(number, error, message) { yield duration }
        end
      end

      def expired(number)
        error, message = @alarms.of(number)
        raise error, message if error
      end

      def io_select(reads, writes, errors, timeout)
        ready = ready_now(reads, writes, errors)
        return ready if ready || timeout&.zero?

        wanted = interests([[reads, IO::READABLE], [writes, IO::WRITABLE], [errors, IO::PRIORITY]])
        return Fibers.apart { IO.select(reads, writes, errors, timeout) } if wanted.length > MOST

        fired = Native.fiber_select(wanted.to_a, limit(timeout))
        fired.empty? ? nil : ready_now(reads, writes, errors) || pick(fired.to_h, reads, writes, errors)
      end

      # Runs the block on its own fiber until it waits. The fiber no longer belongs to the request.
      def fiber(&block)
        fiber = Fiber.new(blocking: false) { contain(&block) }
        Native.fiber_start(fiber)
        fiber
      end

      def process_wait(pid, flags)
        Fibers.apart { Process::Status.wait(pid, flags) }
      end

      def address_resolve(hostname)
        Fibers.apart { Addrinfo.getaddrinfo(hostname, nil, nil, :STREAM).map(&:ip_address).uniq }
      end

      # Ruby 4.0: wakes a fiber whose descriptor has been closed. It gets the error when it goes on.
      def fiber_interrupt(fiber, _error)
        Native.fiber_unblock(@number, fiber)
      end

      # Ruby 4.0: lets the other fibers run.
      def yield
        Native.fiber_pause
      end

      # Called when the loop has ended.
      def close; end

      private

      # Converts seconds to microseconds. nil means no limit.
      def limit(seconds)
        micros(seconds) if seconds
      end

      def micros(seconds)
        (seconds * 1_000_000).ceil.clamp(0, 1 << 60)
      rescue FloatDomainError
        1 << 60
      end

      # Returns the events by descriptor.
      def interests(lists)
        lists.each_with_object(Hash.new(0)) do |(list, events), wanted|
          list&.each { |io| wanted[descriptor(io)] |= events }
        end
      end

      def descriptor(io)
        (io.is_a?(IO) ? io : io.to_io).fileno
      end

      def ready_now(reads, writes, errors)
        return IO.select(reads, writes, errors, 0) unless ASKED_TO_SELECT

        Fiber.blocking { IO.select(reads, writes, errors, 0) }
      end

      def pick(fired, reads, writes, errors)
        [[reads, IO::READABLE], [writes, IO::WRITABLE], [errors, IO::PRIORITY]].map do |list, events|
          list.to_a.select { |io| (fired[descriptor(io)].to_i & events).positive? }
        end
      end

      def contain
        yield
      rescue Disconnected
        nil
      rescue StandardError, ScriptError => e
        Report.log("firebrick: #{Exchange.name}: in a fiber of the app: #{Report.text(e)}")
      end
    end
  end
end
