# frozen_string_literal: true

module Firebrick
  class Template
    # The signal on which a worker logs the backtraces of its threads, and a template that loads the app sends its own.
    DUMP = Signal.list.key?("PWR") ? "PWR" : "INFO"

    # Reports where a template is that takes too long to load the app. Runs in a trap, inside the code that is loading.
    module Whereabouts
      OWN = File.dirname(__dir__)
      # The number of lines of the main thread's backtrace, and of each other thread's.
      MOST = 60
      MOST_OF_OTHERS = 5

      private

      def tell_where_when_asked
        trap(DUMP) { tell(caller) }
      end

      # A process that has just been forked has closed the socket.
      def tell(here)
        @control.send_message(Wire::Report::LOADING, where(here))
      rescue IOError
        nil
      end

      # here:: the backtrace of the main thread
      def where(here)
        others = (Thread.list - [Thread.main]).flat_map do |one|
          [one.inspect, *shown(one.backtrace.to_a, MOST_OF_OTHERS)]
        end
        [*shown(here, MOST), *others].join("\n")
      end

      # Removes this library's own lines, unless there are no others.
      def shown(backtrace, most)
        theirs = backtrace.reject { |line| line.start_with?(OWN) }
        (theirs.empty? ? backtrace : theirs).first(most).map { |line| "    #{line}" }
      end
    end
  end
end
