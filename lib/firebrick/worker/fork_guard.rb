# frozen_string_literal: true

module Firebrick
  class Worker
    # A process that the app forks from a worker must not keep the worker's links open: the front would not notice that
    # the worker has exited, and two processes would send responses.
    module ForkGuard
      def _fork
        super.tap { |pid| Native.abandon if pid.zero? }
      end
    end
  end
end
