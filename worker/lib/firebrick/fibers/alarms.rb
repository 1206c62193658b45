# frozen_string_literal: true

module Firebrick
  module Fibers
    # The `Timeout.timeout`s of a loop, by number: their exceptions, and the fibers that have set them.
    class Alarms
      # Matches the `to_s` of a fiber that runs, or has resumed another one and waits for its return.
      CALLS = /\((?:resumed|\w+ by resuming)\)/
      STATUS = Fiber.instance_method(:to_s)
      private_constant :CALLS, :STATUS

      def initialize
        @all = {}
      end

      # Runs the block with a time-out in a child that the app has forked, which has no loop: another thread raises, as
      # in Ruby's own Timeout.
      def self.by_thread(duration, error, message)
        thread = Thread.current
        watch = Thread.new do
          sleep duration
          thread.raise(error, message)
        end
        yield duration
      ensure
        watch&.kill
        watch&.join
      end

      # Runs the block of an alarm, on the fiber that sets it.
      def during(number, error, message)
        @all[number] = [error, message, Fiber.current]
        yield
      ensure
        @all.delete(number)
      end

      # Returns an exception or its class, and a message; nil when the alarm is over.
      def of(number)
        @all[number]&.first(2)
      end

      # Returns whether the fiber that set the alarm runs, or has resumed another one and waits for its return. False
      # for one that has yielded or transferred.
      def calls?(number)
        fiber = @all[number]&.last
        fiber ? STATUS.bind_call(fiber).match?(CALLS) : false
      end

      # Forgets an alarm whose fiber has been left for good.
      def forget(number)
        @all.delete(number)
      end
    end
  end
end
