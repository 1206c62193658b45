# frozen_string_literal: true

module Firebrick
  module Fibers
    # The `Timeout.timeout`s of a loop, by their numbers: what they raise, and the fibers that have set them.
    class Alarms
      # What Ruby says of a fiber that runs, or has resumed another one and waits for it to come back.
      CALLS = /\((?:resumed|\w+ by resuming)\)/
      STATUS = Fiber.instance_method(:to_s)
      private_constant :CALLS, :STATUS

      def initialize
        @all = {}
      end

      # In a child that the app has forked, which has no loop: another thread raises, as Ruby's own would have it.
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

      # Runs the block of one, on the fiber that sets it.
      def during(number, error, message)
        @all[number] = [error, message, Fiber.current]
        yield
      ensure
        @all.delete(number)
      end

      # What it raises: an exception or its class, and a message; nil when it is over.
      def of(number)
        @all[number]&.first(2)
      end

      # Whether the fiber that set it runs, or has resumed another one and waits for it to come back; one that has
      # yielded or transferred does not.
      def calls?(number)
        fiber = @all[number]&.last
        fiber ? STATUS.bind_call(fiber).match?(CALLS) : false
      end

      # Its fiber has been left for good.
      def forget(number)
        @all.delete(number)
      end
    end
  end
end
