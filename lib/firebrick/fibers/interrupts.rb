# frozen_string_literal: true

module Firebrick
  module Fibers
    # What may be raised where a request waits, and what keeps it out: its `Timeout.timeout`s, and its
    # `Thread.handle_interrupt`s. Ruby keeps the latter for each thread, where they would meet whatever other request
    # runs meanwhile. They belong to a request with all fibers that it resumes; a fiber of `Fiber.schedule` has its own.
    class Interrupts
      # As natively.
      PLACES = { immediate: 0, on_blocking: 1, never: 2 }.freeze
      IMMEDIATE = PLACES[:immediate]
      # Methods that resume another fiber and wait for it to come back.
      RESUMING = %w[resume raise kill next peek next_values peek_values].freeze
      # Of a fiber without a request, among its locals.
      KEY = :__firebrick_interrupts__

      # Those of the calling fiber.
      def self.here
        Native.fiber_interrupts || (Thread.current[KEY] ||= new)
      end

      def initialize
        @rules = []
        @alarms = {}
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
        @alarms[number] = [error, Fiber.current]
        yield number
      ensure
        Native.fiber_cancel(number)
        @alarms.delete(number)
      end

      # Whether the fiber that set this alarm has resumed another one and waits for it to come back. Its innermost
      # function tells; one that has yielded or transferred is in another.
      def resumes?(number)
        _, fiber = @alarms[number]
        frame = fiber&.alive? && fiber.backtrace(0, 1)&.first
        frame ? RESUMING.include?(frame[/(\w+)'\z/, 1]) : false
      end

      # Whether something is kept out that would be raised: of this class, if one is named.
      def pending?(kind = nil)
        numbers, gone = Native.fiber_pending
        waiting = numbers.filter_map { |number| kind_of(@alarms[number].first) if @alarms.key?(number) }
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
        @alarms.each { |number, (error, _)| Native.fiber_hold(number, place(error)) }
        Native.fiber_deliver
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
