# frozen_string_literal: true

module Firebrick
  class Worker
    # Selects the app's lines of a backtrace: without this library's at the inner end, and without those that called
    # the app. Paths are relative to the app's folder.
    class AppLines
      # The path prefix of this library in backtraces.
      OWN = "#{File.dirname(__dir__)}/"

      def initialize(*folders)
        @prefixes = folders.uniq.map { |folder| "#{folder.chomp('/')}/" }
      end

      def of(lines)
        own = ->(line) { line.start_with?(OWN) }
        lines.drop_while(&own).take_while { |line| !own[line] }.map { |line| relative(line) }
      end

      private

      def relative(line)
        prefix = @prefixes.find { |folder| line.start_with?(folder) }
        prefix ? line.delete_prefix(prefix) : line
      end
    end
  end
end
