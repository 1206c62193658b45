# frozen_string_literal: true

module Firebrick
  module Hub
    # The methods and blocks of `periodically`. The front keeps the time.
    module Timers
      module_function

      # Returns the intervals in seconds.
      def intervals(channel)
        channel.class.periodic_timers.map { |_, options| Float(options.fetch(:every)) }
      end

      # Runs one of them, and returns the intervals: since the subscription the code may have changed.
      def run(channel, place)
        callback, = channel.class.periodic_timers[place]
        channel.instance_exec(&callback) if callback
        intervals(channel)
      end
    end
  end
end
