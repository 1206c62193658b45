# frozen_string_literal: true

module Firebrick
  class Template
    # The backtrace of an app that cannot be loaded: its own lines first, those of gems and of Ruby as a number. Between
    # a line of the app and the error, frameworks have dozens.
    class BootFrames
      # Lines that are shown of a backtrace without any of the app.
      MOST = 12
      # Shows everything.
      FULL = "FIREBRICK_ALL_FRAMES"
      # Folders in an app that hold the code of others.
      FOREIGN = %r{\A(?:vendor|node_modules|\.bundle)/}
      GEM = %r{/gems/([^/]+?)-\d[^/]*/}
      private_constant :MOST, :FOREIGN, :GEM

      # What was raised while the app was loading.
      def self.explain(error)
        frames = new(Dir.pwd)
        if error.is_a?(SystemExit)
          text = frames.of(error.backtrace).join("\n    ")
          return "the app called exit (#{error.status}) while it was loading\n    #{text}"
        end

        require "firebrick/report"
        Report.text(error) { |lines| frames.of(lines) }
      end

      def initialize(dir)
        folders = [dir, (File.realpath(dir) if File.exist?(dir))].compact.uniq
        @prefixes = folders.map { |folder| "#{folder.chomp('/')}/" }
      end

      def of(lines)
        lines = Array(lines).map { |line| relative(line.to_s) }
        return lines if ENV.key?(FULL)
        return lines.first(MOST) + folded(lines.drop(MOST)) if lines.none? { |line| own?(line) }

        own_first(*lines)
      end

      private

      # Where it was raised comes before all others, whosever line it is.
      def own_first(first, *rest)
        own, others = rest.partition { |line| own?(line) }
        [first, *own, *folded(others)]
      end

      def relative(line)
        prefix = @prefixes.find { |folder| line.start_with?(folder) }
        prefix ? line.delete_prefix(prefix) : line
      end

      def own?(line)
        !line.start_with?("/", "<", "(", "-e:") && !line.match?(FOREIGN)
      end

      def folded(lines)
        return [] if lines.empty?

        most = lines.map { |line| line[GEM, 1] || "Ruby" }.tally.max_by(4) { |_, count| count }
        names = most.map { |name, count| "#{name} #{count}" }.join(", ")
        ["(and #{lines.length} lines of others: #{names}; #{FULL}=1 shows them)"]
      end
    end
  end
end
