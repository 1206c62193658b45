# frozen_string_literal: true

module Firebrick
  module Generators
    # A line that the generator replaces stays as a comment above the new one, so that `rails destroy` can restore it.
    module Marks
      MARK = "# Before firebrick:install: "
      OLD_LINE = /^([ \t]*)#{MARK}(.*\n)/.freeze

      module_function

      # Returns the lines of +old+ as comments, and +new+.
      def replace(old, new = "")
        old.lines.map { |line| line.chomp.sub(/\A[ \t]*/) { |indent| indent + MARK } << "\n" }.join + new
      end

      # Restores the lines in the comments. +own+ matches the generator's lines below them.
      def undo(text, own = /(?!)/)
        text.gsub(/((?:#{OLD_LINE.source})+)(?:#{own.source})*/) { Regexp.last_match(1).gsub(OLD_LINE, "\\1\\2") }
      end

      # Returns the text with a line break at its end.
      def complete(text)
        text.empty? || text.end_with?("\n") ? text : "#{text}\n"
      end
    end
  end
end
