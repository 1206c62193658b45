# frozen_string_literal: true

require "firebrick/template/boot_threads"
require "firebrick/template/jobs"

module Firebrick
  class Template
    # Of the boot: what the app has started that is no part of the template, threads and processes.
    module Started
      # What the hooks of `before_fork` have started.
      attr_reader :jobs

      private

      # The facts that the block returns, and a warning of threads that it has left behind.
      def watch_threads
        threads = BootThreads.new
        yield + threads_of_the_app(threads)
      end

      # Where nothing is forked, they live where the app does.
      def threads_of_the_app(threads)
        threads.facts
      end

      # Runs the hooks of `before_fork`. Facts for `booted`.
      def start_jobs
        @jobs = Jobs.new(Firebrick.hooks(:before_fork))
        @jobs.start.map { |pid| ["job", pid] }
      end
    end
  end
end
