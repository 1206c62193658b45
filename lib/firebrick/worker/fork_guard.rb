# frozen_string_literal: true

module Firebrick
  class Worker
    # A process that the app forks from a worker must not hold the worker's links: the front would not see the
    # worker's end, and two processes would answer.
    module ForkGuard
      def _fork
        super.tap { |pid| Native.abandon if pid.zero? }
      end
    end
  end
end
