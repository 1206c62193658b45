# frozen_string_literal: true

module Firebrick
  class Template
    # The backtrace of an app that cannot be loaded: its own lines first, those of gems and of Ruby as a number. Between a line of the app and
    # the error, frameworks have dozens.
    class BootFrames
      # Lines that are shown of a backtrace without any of the app.
      MOST = 12
      # Shows everything.
      FULL = "FIREBRICK_BACKTRACE"
      # Folders in an app that hold the code of others.
      FOREIGN = %r{\A(?:vendor|node_modules|\.bundle)/}
      GEM = %r{/gems/([^/]+?)-\d[^/]*/}
      private_constant :MOST, :FOREIGN, :GEM

      def initialize(dir)
        @prefixes = [dir, (File.realpath(dir) if File.exist?(dir))].compact.uniq.map { |folder| "#{folder.chomp('/')}/" }
      end

      def of(lines)
        lines = Array(lines).map { |line| relative(line.to_s) }
        return lines if ENV.key?(FULL)

        own, others = lines.partition { |line| own?(line) }
        return lines.first(MOST) + folded(lines.drop(MOST)) if own.empty?

        # Where it was raised comes before all others, whosever line it is.
        first = own?(lines.first) ? [] : [others.shift]
        first + own + folded(others)
      end

      private

      def relative(line)
        prefix = @prefixes.find { |folder| line.start_with?(folder) }
        prefix ? line.delete_prefix(prefix) : line
      end

      def own?(line)
        !line.start_with?("/", "<", "(") && !line.match?(FOREIGN)
      end

      def folded(lines)
        return [] if lines.empty?

        gems = lines.map { |line| line[GEM, 1] || "Ruby" }.tally.max_by(4) { |_, count| count }.map { |name, count| "#{name} #{count}" }
        ["(and #{lines.length} lines of others: #{gems.join(", ")}; #{FULL}=1 shows them)"]
      end
    end
  end
end
