# frozen_string_literal: true

require "firebrick/services"

# Callbacks of the app for the start and end of template and workers. They run in the order of registration.
module Firebrick
  @hooks = { before_fork: [], before_refork: [], after_fork: [], before_worker_exit: [] }
  %i[before_worker_fork after_worker_fork after_worker_exit before_thread_start before_thread_exit out_of_band]
    .each { |name| @hooks[name] = [] }
  @error_handler = nil
  @services = Services.new

  class << self
    # Runs once in each template before it forks its first worker: after the app has been loaded and warmed up, and
    # after a worker has become a template (`refork_after`). If it raises, the server does not start, or the refork
    # fails.
    def before_fork(&block)
      add_hook(:before_fork, block)
    end

    # Runs in a process that was forked from a worker to become a template, before the `before_fork` hooks. Use it to
    # close resources of the worker, or to release memory that workers should not share. If it raises, the refork fails.
    def before_refork(&block)
      add_hook(:before_refork, block)
    end
    alias on_refork before_refork

    # Runs in each worker before it takes requests, with the worker's index. If it raises, the worker exits.
    def after_fork(&block)
      add_hook(:after_fork, block)
    end
    alias on_worker_boot after_fork

    # Runs in each worker after its last response, with the worker's index.
    def before_worker_exit(&block)
      add_hook(:before_worker_exit, block)
    end

    # Runs in the template before each fork of a worker, with the worker's index. If it raises, the worker is not
    # forked, and the fork is retried.
    def before_worker_fork(&block)
      add_hook(:before_worker_fork, block)
    end

    # Runs in the template after each fork of a worker, with the worker's index.
    def after_worker_fork(&block)
      add_hook(:after_worker_fork, block)
    end

    # Runs in the template when a worker has exited, with a Firebrick::WorkerExit.
    def after_worker_exit(&block)
      add_hook(:after_worker_exit, block)
    end

    # Runs in each serving thread before its first request.
    def before_thread_start(&block)
      add_hook(:before_thread_start, block)
    end

    # Runs in each serving thread after its last request.
    def before_thread_exit(&block)
      add_hook(:before_thread_exit, block)
    end

    # Runs in a worker that serves no request when a full garbage collection is due (`rack.out_of_band_gc`), before it.
    def out_of_band(&block)
      add_hook(:out_of_band, block)
    end

    # Sets the block that makes the response after the app has raised. It gets the exception and the env (nil if there
    # is none), and returns status, headers and body. If it raises, or returns something else, the standard page is
    # sent.
    def on_error(&block)
      raise ArgumentError, "Firebrick.on_error needs a block" unless block

      @error_handler = block
    end

    # Declares a service: a process that runs the block and gets no requests. It is forked from the template when the
    # workers are ready, restarted when it ends, moved to new code last, and stopped after the workers. The block gets
    # the Firebrick::Service. Call this while the app loads; options are those of the settings (docs/services.md).
    def service(name, **options, &block)
      raise ArgumentError, "Firebrick.service needs a block" unless block

      @services.declare(name, caller_locations(1, 1).first, **options, &block)
    end

    # The services declared with `service`.
    attr_reader :services

    attr_reader :error_handler

    def run_hooks(name, *arguments)
      @hooks.fetch(name).each { |hook| hook.call(*arguments) }
    end

    # Returns the registered hooks, in order.
    def hooks(name)
      @hooks.fetch(name).dup
    end

    private

    def add_hook(name, block)
      raise ArgumentError, "Firebrick.#{name} needs a block" unless block

      @hooks.fetch(name) << block
    end
  end
end
