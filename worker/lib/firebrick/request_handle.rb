# frozen_string_literal: true

require "firebrick/exchange"

module Firebrick
  # The objects `rack.hijack` and `firebrick.timeout` of an env. Wherever they are called, they refer to the same
  # request; when it has ended, they raise IOError.
  module RequestHandle
    # The longest extension: a day, in seconds.
    LONGEST = 86_400

    # `rack.hijack`: returns the socket, the same one each time.
    def call
      @hijacked || Exchange.hijack(self) { |socket| @hijacked = socket }
    end

    # `firebrick.timeout`, for requests that know that they take longer than `timeouts.worker`: gives the request at
    # least +seconds+ from now until its response begins. Never shortens the time; may be called again.
    # Only on the thread that serves the request.
    def extend(seconds)
      # Comparisons, because between? raises for NaN.
      unless seconds.is_a?(Numeric) && seconds.real? && seconds >= 0 && seconds <= LONGEST
        raise ArgumentError, "firebrick.timeout: extend takes seconds from 0 to #{LONGEST}, got #{seconds.inspect}"
      end

      Native.extend_timeout(self, (seconds * 1000).ceil)
      StatementTimeout.current&.extend(seconds)
    end

    # Always the same, so that logs and cache keys of an env do not change with each request.
    def inspect
      "#<Firebrick::RequestHandle>"
    end
    alias to_s inspect
  end

  # `rack.early_hints`.
  module HintsHandle
    def call(headers)
      Native.early_hints(self, headers)
    end
  end
end
