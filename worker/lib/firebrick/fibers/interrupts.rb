# frozen_string_literal: true

module Firebrick
  module Fibers
    # The interrupts of a request, and the rules that defer them: its `Timeout.timeout`s and its
    # `Thread.handle_interrupt`s. Ruby keeps the rules per thread, where they would apply to whichever request runs
    # meanwhile. Here they belong to a request, or to a fiber of `Fiber.schedule`, with all fibers that it resumes.
    class Interrupts
      # The numbers that the native part uses.
      PLACES = { immediate: 0, on_blocking: 1, never: 2 }.freeze
      IMMEDIATE = PLACES[:immediate]

      # Returns the interrupts of the calling fiber.
      def self.here
        Native.fiber_interrupts || new
      end

      def initialize
        @rules = []
      end

      # Runs the block under the rules of `Thread.handle_interrupt`: timings by class of exception.
      def within(rules)
        own = checked(rules)
        @rules.push(own)
        begin
          settle
          yield
        ensure
          @rules.delete_if { |one| one.equal?(own) }
          settle
        end
      end

      # Runs the block with an alarm, and yields its number.
      def alarm(micros, error)
        number = Native.fiber_alarm(micros, place(error))
        yield number
      ensure
        Native.fiber_cancel(number)
      end

      # Returns whether an interrupt is deferred; with +kind+, only one of this class.
      def pending?(kind = nil)
        numbers, gone = Native.fiber_pending
        waiting = numbers.filter_map { |number| error_of(number)&.then { |error| kind_of(error) } }
        waiting << ClientGone if gone
        waiting.any? { |one| kind.nil? || one <= kind }
      end

      private

      def checked(rules)
        rules.to_hash.transform_values do |place|
          PLACES.fetch(place) { raise ArgumentError, "unknown mask signature" }
        end
      end

      # Tells the loop that the rules have changed, and raises interrupts that are no longer deferred.
      def settle
        Native.fiber_hold(nil, place(ClientGone))
        Native.fiber_alarms.each do |number|
          error = error_of(number)
          Native.fiber_hold(number, place(error)) if error
        end
        Native.fiber_deliver
      end

      # Returns the exception of an alarm.
      def error_of(number)
        error, = Fiber.scheduler&.alarms&.of(number)
        error
      end

      # Returns where +error+ may be raised. The innermost rules that name one of its classes decide, the nearest class
      # first.
      def place(error)
        return IMMEDIATE if @rules.empty?

        ancestors = kind_of(error).ancestors
        @rules.reverse_each do |rules|
          ancestors.each { |one| (found = rules[one]) && (return found) }
        end
        IMMEDIATE
      end

      def kind_of(error)
        error.is_a?(Module) ? error : error.class
      end
    end
  end
end
