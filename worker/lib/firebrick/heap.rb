# frozen_string_literal: true

require "firebrick/heap/lines"
require "firebrick/heap/tracing"
require "firebrick/heap/writer"

module Firebrick
  # Carries out an order of the front to describe the heap (`firebrick leaks`): a forked child writes every live object
  # into a pipe (Writer), and the worker goes on.
  #
  # Contract:
  # - The worker is stopped for the fork alone. The child costs it nothing but copied pages.
  # - The child ends with the worker, after `limit` seconds, or when the reader of the pipe is gone. It writes no file.
  # - The last line in the pipe tells what happened: {"done": …} or {"error": "…"}. Without one the worker has ended.
  class Heap
    # The interval of looking at the child, in seconds.
    LOOK = 0.02

    class << self
      # Starts a thread for each order that has come.
      def answer
        while (order = Native.heap_order)
          Thread.new(*order) { |*given| new(*given).run }.name = "firebrick: heap"
        end
      end

      # Forks without the `_fork` methods that libraries and ForkGuard prepend: they run code for children that serve.
      # Returns the child's process id, or nil in the child.
      def bare_fork
        fork = Process.method(:_fork)
        fork = fork.super_method while fork.super_method
        pid = fork.call
        pid unless pid.zero?
      end
    end

    # pipe:: a descriptor. trace:: seconds, nil: as before. limit:: of the child's life, in milliseconds
    def initialize(pipe, dump, trace, limit)
      @pipe = IO.for_fd(pipe, "wb")
      @lines = Lines.new(@pipe)
      @dump = dump
      @trace = trace
      @limit = limit / 1000.0
    end

    def run
      require "objspace"
      Tracing.for(@trace) if @trace&.positive?
      @dump ? dump : @lines.tell("done", true)
      Tracing.for(0) if @trace&.zero?
    rescue StandardError, ScriptError, NoMemoryError => e
      @lines.tell("error", "the worker cannot fork a process for the dump: #{e.class}: #{e.message}")
    ensure
      @pipe.close
    end

    private

    def dump
      worker = Process.pid
      began = now
      pid = Heap.bare_fork
      return Writer.new(@pipe, @lines, worker).run(now - began) unless pid

      failed = await(pid, began + @limit)
      @lines.tell("error", failed) if failed
    end

    # Returns why the child has failed; nil if it has not, or has told itself.
    def await(pid, deadline)
      loop do
        how, code, = Native.reap(pid)
        return (how == "signal" ? killed(code, deadline) : nil) if how
        # The app has waited for all children, and has got this one.
        return if how == false

        kill(pid) if now > deadline
        sleep(LOOK)
      end
    end

    def killed(signal, deadline)
      return "the dump was not complete after #{@limit.round} s, and its process was killed" if now > deadline

      by = "SIG#{Signal.signame(signal)}#{' (did memory run out?)' if signal == 9}"
      "the process that wrote the dump was killed by #{by}"
    end

    def kill(pid)
      Process.kill("KILL", pid)
    rescue SystemCallError
      nil
    end

    def now
      Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end
