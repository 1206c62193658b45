# frozen_string_literal: true

module Firebrick
  class Template
    # The stacks of fibers (`rack.fiber_stack`). The front has chosen them when it started this process, and Ruby has
    # read the variables.
    module FiberStack
      NAMES = %w[FIBER_VM_STACK_SIZE FIBER_MACHINE_STACK_SIZE].freeze

      # Programs that the app starts get the environment that the server was started with.
      def self.restore_environment
        NAMES.each do |name|
          before = ENV.delete("FIREBRICK_#{name}") or next
          ENV["RUBY_#{name}"] = (before unless before.empty?)
        end
      end
    end
  end
end
