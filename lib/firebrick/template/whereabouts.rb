# frozen_string_literal: true

module Firebrick
  class Template
    # Makes a worker write the backtraces of its threads, and a template that loads the app send its own.
    DUMP = Signal.list.key?("PWR") ? "PWR" : "INFO"

    # Where a template is that loads the app for too long. Runs inside whatever that is doing.
    module Whereabouts
      OWN = File.dirname(__dir__)
      # Lines of the main thread's backtrace, and of each other thread's.
      MOST = 60
      MOST_OF_OTHERS = 5

      private

      def tell_where_when_asked
        trap(DUMP) { tell(caller) }
      end

      # A process that has just been forked has given up the socket.
      def tell(here)
        @control.send_message("loading", where(here))
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

      # Without our own calls, unless there are no others.
      def shown(backtrace, most)
        theirs = backtrace.reject { |line| line.start_with?(OWN) }
        (theirs.empty? ? backtrace : theirs).first(most).map { |line| "    #{line}" }
      end
    end
  end
end
