# frozen_string_literal: true

# What an app hangs into the life of template and workers. Hooks run in the order in which they were given.
module Firebrick
  @hooks = { before_fork: [], after_fork: [], before_worker_exit: [] }
  @error_handler = nil

  class << self
    # In the template, once, when the app is loaded and warm and before the first worker is forked. An exception
    # means that the app cannot start.
    def before_fork(&block)
      add_hook(:before_fork, block)
    end

    # In each worker, before it takes requests. Gets the worker's index. An exception ends the worker.
    def after_fork(&block)
      add_hook(:after_fork, block)
    end
    alias on_worker_boot after_fork

    # In each worker, when it has answered its last request. Gets the worker's index.
    def before_worker_exit(&block)
      add_hook(:before_worker_exit, block)
    end

    # Answers for requests whose app raised: gets the exception and the env (nil if there is none), returns status,
    # headers and body. If it raises itself, or returns something else, the standard page is sent.
    def on_error(&block)
      raise ArgumentError, "Firebrick.on_error needs a block" unless block

      @error_handler = block
    end

    attr_reader :error_handler

    def run_hooks(name, *arguments)
      @hooks.fetch(name).each { |hook| hook.call(*arguments) }
    end

    private

    def add_hook(name, block)
      raise ArgumentError, "Firebrick.#{name} needs a block" unless block

      @hooks.fetch(name) << block
    end
  end
end
