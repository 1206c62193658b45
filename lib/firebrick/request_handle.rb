# frozen_string_literal: true

require "firebrick/exchange"

module Firebrick
  # What an env has of its request: `rack.hijack` and `firebrick.timeout`. Where it is called does not matter, it is
  # always about the same request; when that has ended, it raises IOError.
  module RequestHandle
    # The longest extension: a day, in seconds.
    LONGEST = 86_400

    # `rack.hijack`: the socket, the same each time.
    def call
      @hijacked || Exchange.hijack(self) { |socket| @hijacked = socket }
    end

    # `firebrick.timeout`, for requests that know that they take longer than `timeouts.worker`: the request may take at
    # least +seconds+ from now until its response begins. Never makes the time shorter; may be called again.
    # Only on the thread that serves the request.
    def extend(seconds)
      # Not between?, which raises for NaN.
      unless seconds.is_a?(Numeric) && seconds.real? && seconds >= 0 && seconds <= LONGEST
        raise ArgumentError, "firebrick.timeout: extend takes seconds from 0 to #{LONGEST}, got #{seconds.inspect}"
      end

      Native.extend_timeout(self, (seconds * 1000).ceil)
    end

    # All look the same: logs and caches of an env do not change with each request.
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
