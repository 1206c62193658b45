# frozen_string_literal: true

require_relative "marks"

module Firebrick
  module Generators
    # The adapter of Action Cable in production (config/cable.yml).
    module Cable
      FRESH = "development:\n  adapter: async\n\ntest:\n  adapter: test\n\nproduction:\n  adapter: firebrick\n"
      PRODUCTION = /^production:[ \t]*(?:#.*)?\n(?:[ \t]+.*\n|[ \t]*#.*\n|[ \t]*\n)*/.freeze
      ADAPTER = /^[ \t]+adapter:.*\n/.freeze
      OWN = /[ \t]+adapter: firebrick\n/.freeze
      ADDED = "  adapter: firebrick # added by firebrick:install\n"
      REMARK = "config/cable.yml: there is no section `production:` with lines of its own; write: adapter: firebrick"

      module_function

      # Returns the text with the adapter, and a note if there is no place for it.
      def install(text)
        text = Marks.complete(text)
        section = text[PRODUCTION]
        return [text, REMARK] unless section
        return text if section.match?(/^[ \t]+adapter:[ \t]*["']?firebrick\b/)

        text.sub(section) { section.match?(ADAPTER) ? replace(section) : section.sub("\n", "\n#{ADDED}") }
      end

      def replace(section)
        section.sub(ADAPTER) { |line| Marks.replace(line, "#{line[/\A[ \t]+/]}adapter: firebrick\n") }
      end

      # Returns nil if nothing is left.
      def remove(text)
        Marks.undo(text, OWN).sub(ADDED, "") unless text == FRESH
      end
    end
  end
end
