# frozen_string_literal: true

require "firebrick/template/boot_threads"
require "firebrick/template/jobs"

module Firebrick
  class Template
    # The part of the boot that finds threads and processes started by the app.
    module Started
      # The Jobs of the `before_fork` hooks.
      attr_reader :jobs

      private

      # Returns the facts of the block, and a warning about threads that it has left behind.
      def watch_threads
        threads = BootThreads.new
        yield + threads_of_the_app(threads)
      end

      # Returns the warning. Overridden where nothing is forked, because there the threads live on.
      def threads_of_the_app(threads)
        threads.facts
      end

      # Runs the `before_fork` hooks. Returns facts for `booted`.
      def start_jobs
        @jobs = Jobs.new(Firebrick.hooks(:before_fork))
        @jobs.start.map { |pid| [Wire::Booted::JOB, pid] }
      end
    end
  end
end
