# frozen_string_literal: true

module Firebrick
  class Template
    # The backtrace of an app that cannot be loaded: its own lines first, then the number of lines of gems and of Ruby.
    # Frameworks add dozens of lines between a line of the app and the error.
    class BootFrames
      # The number of lines shown of a backtrace without lines of the app.
      MOST = 12
      # The variable that shows all lines.
      FULL = "FIREBRICK_ALL_FRAMES"
      # Folders of an app that contain code of others.
      FOREIGN = %r{\A(?:vendor|node_modules|\.bundle)/}.freeze
      GEM = %r{/gems/([^/]+?)-\d[^/]*/}.freeze
      # Added to errors of encodings, if no locale is set: systemd and containers often set none.
      LOCALE = "Ruby reads files as US-ASCII, because no locale is set (LC_ALL, LC_CTYPE, LANG): set LANG=C.UTF-8"
      private_constant :MOST, :FOREIGN, :GEM, :LOCALE

      # Describes an exception raised while the app was loading.
      def self.explain(error)
        frames = new(Dir.pwd)
        if error.is_a?(SystemExit)
          text = frames.of(error.backtrace).join("\n    ")
          return "the app called exit (#{error.status}) while it was loading\n    #{text}"
        end

        require "firebrick/report"
        text = Report.text(error) { |lines| frames.of(lines) }
        locale?(error) ? "#{text.chomp}\n#{LOCALE}\n" : text
      end

      def self.locale?(error)
        Encoding.default_external == Encoding::US_ASCII && error.message.b.include?("US-ASCII")
      end
      private_class_method :locale?

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

      # The line that raised always comes first, even if it is not the app's.
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

        most = lines.group_by { |line| line[GEM, 1] || "Ruby" }.max_by(4) { |_, of_one| of_one.length }
        names = most.map { |name, of_one| "#{name} #{of_one.length}" }.join(", ")
        ["(and #{lines.length} lines of others: #{names}; #{FULL}=1 shows them)"]
      end
    end
  end
end
