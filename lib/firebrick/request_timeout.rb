# frozen_string_literal: true

module Firebrick
  # `env["firebrick.timeout"]`: for requests that know that they take longer than `timeouts.worker`. It has no state, so
  # all requests share one.
  class RequestTimeout
    # The longest extension: a day, in seconds.
    LONGEST = 86_400

    # The request may take at least +seconds+ from now until its response begins. Never makes the time shorter; may be
    # called again. Only on the thread that serves the request.
    def extend(seconds)
      # Not between?, which raises for NaN.
      unless seconds.is_a?(Numeric) && seconds.real? && seconds >= 0 && seconds <= LONGEST
        raise ArgumentError, "firebrick.timeout: extend takes seconds from 0 to #{LONGEST}, got #{seconds.inspect}"
      end

      Native.extend_timeout((seconds * 1000).ceil)
    end
  end
end
