# frozen_string_literal: true

require_relative "marks"

module Firebrick
  module Generators
    # The server's gem in the Gemfile.
    module Gemfile
      ADDED = "\n# Serves the app. Added by firebrick:install.\ngem \"firebrick\"\n"

      module_function

      # +replace+: comments out the servers that Firebrick replaces.
      def install(text, replace:)
        text = Marks.complete(text)
        text = text.gsub(declaration("puma|thruster")) { |lines| Marks.replace(lines) } if replace
        text.match?(declaration("firebrick")) ? text : text + ADDED
      end

      def remove(text)
        Marks.undo(text).sub(ADDED, "")
      end

      def names?(text, gem)
        text.match?(declaration(gem))
      end

      # Lines that declare a gem; a comma continues them.
      def declaration(names)
        /^[ \t]*gem[ \t]*\(?[ \t]*["'](?:#{names})["'](?:.*,[ \t]*(?:#.*)?\n)*.*\n/
      end
    end
  end
end
