# frozen_string_literal: true

# Callbacks of the app for the start and end of template and workers. They run in the order of registration.
module Firebrick
  @hooks = { before_fork: [], after_fork: [], before_worker_exit: [] }
  @error_handler = nil

  class << self
    # Runs in the template, once, after the app has been loaded and warmed up and before the first worker is forked.
    # If it raises, the server does not start.
    def before_fork(&block)
      add_hook(:before_fork, block)
    end

    # Runs in each worker before it takes requests, with the worker's index. If it raises, the worker exits.
    def after_fork(&block)
      add_hook(:after_fork, block)
    end
    alias on_worker_boot after_fork

    # Runs in each worker after its last response, with the worker's index.
    def before_worker_exit(&block)
      add_hook(:before_worker_exit, block)
    end

    # Makes the response when the app has raised: gets the exception and the env (nil if there is none), returns status,
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
