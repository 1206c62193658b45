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

      # Returns file and line of the innermost call from a file in the app's folder, but not from a gem there. Returns
      # those of the innermost call of all if there is no such call.
      def place(lines)
        lines = of(lines)
        mine = lines.find { |line| !line.start_with?("/", "<", "vendor/", "(") } || lines.first
        mine&.slice(/\A.+?:\d+/)
      end

      private

      def relative(line)
        prefix = @prefixes.find { |folder| line.start_with?(folder) }
        prefix ? line.delete_prefix(prefix) : line
      end
    end
  end
end
