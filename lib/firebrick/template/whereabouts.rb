# frozen_string_literal: true

module Firebrick
  class Template
    # Where a template is that loads the app for too long. Runs inside whatever that is doing.
    module Whereabouts
      OWN = File.dirname(__dir__)
      # Lines of the main thread's backtrace, and of each other thread's.
      MOST = 60
      MOST_OF_OTHERS = 5

      class << self
        # here:: the backtrace of the main thread
        def text(here)
          others = Thread.list - [Thread.main]
          [*lines(here, MOST), *others.flat_map { |one| [one.inspect, *lines(one.backtrace.to_a, MOST_OF_OTHERS)] }].join("\n")
        end

        private

        # Without our own calls, unless there are no others.
        def lines(backtrace, most)
          theirs = backtrace.reject { |line| line.start_with?(OWN) }
          (theirs.empty? ? backtrace : theirs).first(most).map { |line| "    #{line}" }
        end
      end
    end
  end
end
