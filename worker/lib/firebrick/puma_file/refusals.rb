# frozen_string_literal: true

module Firebrick
  class PumaFile
    # The report to the front about a file that could not be evaluated.
    module Refusals
      # Returns the words of `unconfigured`: place, unknown method, text.
      def refusal(error)
        file, line = place_of(error)
        [file, line, error.is_a?(UnknownMethod) ? error.method_name : "", text_of(error)]
      end

      private

      def place_of(error)
        if error.is_a?(SyntaxError) && (match = /\A(.+?):(\d+): /.match(error.message))
          return [match[1], Integer(match[2])]
        end

        place = error.backtrace_locations.to_a.find { |location| @files.key?(location.path) }
        place ? [place.path, place.lineno] : ["", 0]
      end

      def text_of(error)
        return "exit was called (#{error.status})" if error.is_a?(SystemExit)

        text = "#{error.class}: #{message_of(error).strip}"
        elsewhere = error.backtrace.to_a.first unless error.is_a?(SyntaxError)
        elsewhere && !own?(elsewhere) ? "#{text}\n    #{elsewhere}" : text
      end

      # Ruby 3.1 to 3.3 add the line of code to a NameError, which may be a line of this library.
      def message_of(error)
        plain = error.is_a?(NameError) && error.respond_to?(:original_message)
        (plain ? error.original_message : error.message).to_s
      end

      # Returns whether a line of a backtrace repeats the place that is reported anyway.
      def own?(line)
        line.start_with?(File.dirname(__dir__), *@files.keys.map { |file| "#{file}:" })
      end
    end
  end
end
