# frozen_string_literal: true

module Firebrick
  class Template
    # The `before_fork` hooks, and the processes that they start. The front ends the processes of code that it no longer
    # uses, and may ask for them again (docs/internals/processes.md).
    class Jobs
      # The ids of these processes.
      attr_reader :pids

      def initialize(hooks)
        @hooks = hooks
        @pids = []
      end

      # Runs the hooks. Returns the ids of the processes that they have started.
      def start
        before = children
        @hooks.each(&:call)
        @pids = children - before
      end

      # Runs the hooks again after their processes have been ended. Clears the variables in which they remember them, so
      # that `@pid ||= spawn(...)` starts again.
      def start_again
        @hooks.map { |hook| receiver(hook) }.uniq.each { |object| forget(object) }
        start
      end

      private

      # Returns the object of the block. Firebrick wraps blocks of a puma.rb, so that the original is a local variable.
      def receiver(hook)
        scope = hook.binding
        block = scope.local_variable_get(:block) if scope.local_variable_defined?(:block)
        (block.respond_to?(:binding) ? block.binding : scope).receiver
      end

      def forget(object)
        object.instance_variables.each do |name|
          value = object.instance_variable_get(name)
          pid = value.respond_to?(:pid) ? value.pid : value
          object.remove_instance_variable(name) if @pids.include?(pid)
        end
      rescue StandardError
        # A frozen object, or one that overrides the methods used.
        nil
      end

      def children
        Dir["/proc/self/task/*/children"].flat_map { |file| File.read(file).split.map(&:to_i) }
      rescue SystemCallError
        []
      end
    end
  end
end
