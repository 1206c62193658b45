# frozen_string_literal: true

module Firebrick
  module Compat
    # `Puma::Events`: blocks that run when the server has booted, stops or restarts, under the names of Puma 5 to 8.
    class Events
      NAMES = { after_booted: :on_booted, after_stopped: :on_stopped, before_restart: :on_restart }.freeze

      def initialize(*)
        @hooks = Hash.new { |hooks, name| hooks[name] = [] }
      end

      def register(hook, object = nil, &block)
        raise ArgumentError, "expected either an object or a block" if object && block

        (object || block).tap { |callable| @hooks[NAMES.key(hook) || hook] << callable }
      end

      def fire(hook, *arguments)
        @hooks[NAMES.key(hook) || hook].each { |callable| callable.call(*arguments) }
      end

      NAMES.each do |name, older|
        [name, older].each do |method|
          define_method(method) { |&block| register(name, &block) }
          define_method("fire_#{method}!") { fire(name) }
        end
      end
    end
  end
end
