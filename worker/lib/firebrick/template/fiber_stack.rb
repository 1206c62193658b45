# frozen_string_literal: true

module Firebrick
  class Template
    # The stacks of fibers (`rack.fiber_stack`). The front chose their sizes when it started this process, and Ruby has
    # read the variables.
    module FiberStack
      NAMES = %w[FIBER_VM_STACK_SIZE FIBER_MACHINE_STACK_SIZE].freeze

      # Restores the environment with which the server was started, for programs that the app starts.
      def self.restore_environment
        NAMES.each do |name|
          before = ENV.delete("FIREBRICK_#{name}") or next
          ENV["RUBY_#{name}"] = (before unless before.empty?)
        end
      end
    end
  end
end
