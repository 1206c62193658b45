# frozen_string_literal: true

require "firebrick/source_excerpt"

module Firebrick
  # The lines of a backtrace, those of the app first. Frameworks add dozens of lines between a line of the app and the
  # error.
  class AppFrames
    # The number of lines shown of a backtrace without lines of the app.
    MOST = 12
    # The variable that shows all lines.
    FULL = "FIREBRICK_ALL_FRAMES"
    # Folders of an app that contain code of others.
    FOREIGN = %r{\A(?:vendor|node_modules|\.bundle)/}.freeze
    GEM = %r{/gems/([^/]+?)-\d[^/]*/}.freeze
    # The server's own code, with a slash.
    SERVER = "#{File.realpath(__dir__)}/"
    private_constant :MOST, :FULL, :FOREIGN, :GEM, :SERVER

    # dir:: the folder of the app
    def initialize(dir)
      @dir = dir
      folders = [dir, (File.realpath(dir) if File.exist?(dir))].compact.uniq
      @prefixes = folders.map { |folder| "#{folder.chomp('/')}/" }
    end

    # Returns the lines to show as text: those of the app, and the number of the others.
    def of(lines)
      lines = relative_lines(lines)
      return lines if ENV.key?(FULL)
      return lines.first(MOST) + folded(lines.drop(MOST)) if lines.none? { |line| own?(line) }

      own_first(*lines)
    end

    # Returns the lines of the app, and those of gems and of Ruby; those of the server are left out.
    def split(lines)
      own, others = relative_lines(lines).partition { |line| own?(line) }
      [own, others.reject { |line| line.start_with?(SERVER) }]
    end

    # Returns the source around the first line of the app; nil without one.
    def excerpt(lines)
      first = relative_lines(lines).find { |line| own?(line) }
      first && SourceExcerpt.of(first, @dir)
    end

    # Returns the lines to show as text, with the source below the first line of the app.
    def with_source(lines)
      shown = of(lines)
      source = excerpt(lines)
      at = source && shown.index { |line| own?(line) }
      at ? shown.insert(at + 1, *source.indented) : shown
    end

    private

    def relative_lines(lines)
      Array(lines).map { |line| relative(line.to_s) }
    end

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
