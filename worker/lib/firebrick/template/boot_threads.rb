# frozen_string_literal: true

module Firebrick
  class Template
    # Threads that the app starts while it loads. They live in the template only, because a fork copies one thread. As
    # with Puma, a thread with `thread[:fork_safe]`, or the thread variable of this name, is left out.
    class BootThreads
      def initialize
        @before = Thread.list
      end

      # Returns a fact for `booted`: a warning with their names and places; nothing if there are none.
      def facts
        started = self.started
        started.empty? ? [] : [[Wire::Booted::NOTE, warning(started)]]
      end

      # Returns those that run.
      def started
        (Thread.list - @before).select { |thread| thread.alive? && !fork_safe?(thread) }
      end

      private

      def fork_safe?(thread)
        thread.thread_variable_get(:fork_safe) || thread[:fork_safe]
      end

      def warning(threads)
        count = threads.size == 1 ? "a thread was" : "#{threads.size} threads were"
        it = threads.size == 1 ? "it does" : "they do"
        ["warning: #{count} started while the app loaded, and #{it} not run in the workers, which are forked: start " \
         "such threads in Firebrick.after_fork, or before_worker_boot of puma.rb",
         *threads.map { |thread| "    #{describe(thread)}" }].join("\n")
      end

      def describe(thread)
        [thread.inspect, thread.backtrace.to_a.first].compact.join(" - ")
      end
    end
  end
end
