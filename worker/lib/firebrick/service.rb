# frozen_string_literal: true

require "firebrick/wire"

module Firebrick
  # A process beside the workers that gets no requests and runs a block of the app (docs/services.md). It is declared by
  # `Firebrick.service`, and passed to the block.
  class Service
    RESTARTS = %w[always on-failure never].freeze
    STOP_SIGNALS = %w[TERM INT QUIT HUP USR1 USR2 KILL].freeze
    # Seconds; the limit of the setting, too.
    LONGEST_STOP = 86_400

    # The options as given. `place` is the place of the declaration; `stop_timeout` is in seconds.
    attr_reader :name, :place, :restart, :stop_signal, :stop_timeout, :prefix

    # Raises ArgumentError with the expected value.
    # rubocop:disable Metrics/ParameterLists
    def initialize(name, place, restart: "always", stop_signal: "TERM", stop_timeout: 10, prefix: true, &block)
      @name = name.to_s
      @place = place
      @block = block
      @restart = restart.to_s.tr("_", "-")
      @stop_signal = stop_signal.to_s.upcase.delete_prefix("SIG")
      @stop_timeout = stop_timeout
      @prefix = prefix
      check
    end
    # rubocop:enable Metrics/ParameterLists

    # Returns the keys and values that the template reports.
    def facts
      { Wire::Booted::SERVICE => @name, Wire::Booted::PLACE => @place, Wire::Booted::RESTART => @restart,
        Wire::Booted::STOP_SIGNAL => @stop_signal, Wire::Booted::STOP_TIMEOUT_MS => (@stop_timeout.to_f * 1000).round,
        Wire::Booted::PREFIX => @prefix ? 1 : 0 }.to_a
    end

    # Runs the block, in the service's process.
    def run
      @block.call(self)
    end

    # Returns whether the service was asked to stop. After the first call of this or of `wait`, that request no longer
    # interrupts the block.
    def stopping?
      listen
      heard?(0)
    end

    # Waits until the service is asked to stop, or for +seconds+. Returns whether it was asked to.
    def wait(seconds = nil)
      listen
      heard?(seconds)
    end

    private

    def check
      refuse "the name", @name, "expected letters, digits, - and _" unless @name.match?(/\A[A-Za-z0-9_-]+\z/)
      refuse "restart:", @restart, "expected #{RESTARTS.join(', ')}" unless RESTARTS.include?(@restart)
      unless STOP_SIGNALS.include?(@stop_signal)
        refuse "stop_signal:", @stop_signal, "expected #{STOP_SIGNALS.join(', ')}"
      end
      refuse "stop_timeout:", @stop_timeout, "expected seconds, from 0 to #{LONGEST_STOP}" unless stop_timeout?
      refuse "prefix:", @prefix, "expected true or false" unless [true, false].include?(@prefix)
    end

    def stop_timeout?
      @stop_timeout.respond_to?(:to_f) && !@stop_timeout.is_a?(String) && @stop_timeout.to_f.between?(0, LONGEST_STOP)
    end

    def refuse(what, value, expected)
      raise ArgumentError, "Firebrick.service(#{@name.inspect}) at #{@place}: #{what} #{value.inspect}: #{expected}"
    end

    # Stays readable once the service was asked to stop, so that all waiting threads see it.
    def bell
      @bell ||= IO.pipe
    end

    def heard?(seconds)
      !IO.select([bell.first], nil, nil, seconds).nil?
    end

    def listen
      return if @listening

      ring = bell.last
      trap(@stop_signal) { ring.write_nonblock(".", exception: false) } unless @stop_signal == "KILL"
      @listening = true
    end
  end
end
