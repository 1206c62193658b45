# frozen_string_literal: true

module Firebrick
  module Fibers
    # What may be raised where a request waits, and what keeps it out: its `Timeout.timeout`s, and its
    # `Thread.handle_interrupt`s. Ruby keeps the latter for each thread, where they would meet whatever other request
    # runs meanwhile. They belong to a request, or to a fiber of `Fiber.schedule`, with all fibers that it resumes.
    class Interrupts
      # As natively.
      PLACES = { immediate: 0, on_blocking: 1, never: 2 }.freeze
      IMMEDIATE = PLACES[:immediate]

      # Those of the calling fiber.
      def self.here
        Native.fiber_interrupts || new
      end

      def initialize
        @rules = []
      end

      # Runs the block under the rules of `Thread.handle_interrupt`: places by class of exception.
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

      # Runs the block with an alarm, which is known by its number until it is over.
      def alarm(micros, error)
        number = Native.fiber_alarm(micros, place(error))
        yield number
      ensure
        Native.fiber_cancel(number)
      end

      # Whether something is kept out that would be raised: of this class, if one is named.
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

      # The rules have changed: tells the loop, and raises what has waited for that.
      def settle
        Native.fiber_hold(nil, place(ClientGone))
        Native.fiber_alarms.each do |number|
          error = error_of(number)
          Native.fiber_hold(number, place(error)) if error
        end
        Native.fiber_deliver
      end

      # What an alarm raises.
      def error_of(number)
        error, = Fiber.scheduler&.alarms&.of(number)
        error
      end

      # Where it may be raised: the innermost rules that name one of its classes say so, the nearest class first.
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
