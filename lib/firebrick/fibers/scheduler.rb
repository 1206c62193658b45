# frozen_string_literal: true

require "socket"

module Firebrick
  module Fibers
    # The scheduler of a thread: Ruby calls it, on the fiber concerned, instead of stopping the thread. All that waits
    # is native.
    #
    # There is no `io_write`, and `io_read` only waits and leaves the reading to Ruby (`Native.fiber_reads`): their
    # arguments change from one Ruby to the next, and `io_wait` does for sockets and pipes.
    class Scheduler
      # Since 3.2; before, `Fibers::Select` stands in for it.
      ASKED_TO_SELECT = RUBY_VERSION >= "3.2"
      # Until Ruby 4.0 a list of all reads that wait is gone through by each `IO#close`.
      READS = RUBY_VERSION < "4.0"
      # Descriptors that are waited for at a time without a thread.
      MOST = 16

      def initialize(number)
        @number = number
        @alarms = Alarms.new
        @ends = false
      end

      attr_reader :alarms

      # Whether its loop is about to end. Until then the thread keeps it.
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

      # `Timeout.timeout`: raises at once if the block waits, also in a fiber that it has resumed, or else when it next
      # waits or is pre-empted.
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

      # Runs the block on a fiber of its own until it waits. It does not belong to the request any more.
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

      # Ruby 4.0: something that the fiber waits for has been closed. It finds that out when it goes on.
      def fiber_interrupt(fiber, _error)
        Native.fiber_unblock(@number, fiber)
      end

      # Ruby 4.0.
      def yield
        Native.fiber_pause
      end

      # The loop has ended.
      def close; end

      private

      # Microseconds; nil is for ever.
      def limit(seconds)
        micros(seconds) if seconds
      end

      def micros(seconds)
        (seconds * 1_000_000).ceil.clamp(0, 1 << 60)
      rescue FloatDomainError
        1 << 60
      end

      # Events by descriptor.
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
