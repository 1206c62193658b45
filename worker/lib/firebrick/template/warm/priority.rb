# frozen_string_literal: true

module Firebrick
  class Template
    # The parts of WarmUp.
    module Warm
      # Workers that serve come first: they are the reason for all this.
      NICE = 10

      class << self
        # Runs the block on a thread that gets the processor when no worker wants it. Linux knows priorities of threads,
        # so that the process and its forks keep theirs, which an ordinary user cannot raise again.
        def in_background
          thread = Thread.new do
            yield_processor
            yield
          end
          thread.report_on_exception = false
          thread.value
        end

        # Lowers the priority of the calling thread.
        def yield_processor
          return unless RUBY_PLATFORM.include?("linux")

          lowest = [Process.getpriority(Process::PRIO_PROCESS, 0), NICE].max
          Process.setpriority(Process::PRIO_PROCESS, 0, lowest)
        rescue SystemCallError
          # Not permitted: it takes its turn like the others.
          nil
        end
      end
    end
  end
end
