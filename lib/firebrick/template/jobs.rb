# frozen_string_literal: true

module Firebrick
  class Template
    # The hooks of `before_fork`, and the processes that they start: the front ends those of code that is not in charge
    # any more, and may ask for them again (docs/processes.md).
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

      # What they had started has been ended, so what they remember of it is forgotten: `@pid ||= spawn(...)` starts
      # again.
      def start_again
        @hooks.map { |hook| receiver(hook) }.uniq.each { |object| forget(object) }
        start
      end

      private

      # A block of a puma.rb is called by one of ours.
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
        # A frozen object, or one that answers in its own way.
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
