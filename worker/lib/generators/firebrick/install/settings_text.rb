# frozen_string_literal: true

module Firebrick
  module Generators
    # Adds the options of the generator to the text of a firebrick.toml. Other lines stay as they are.
    module SettingsText
      # The file of an app without `config/puma.rb`.
      FRESH = <<~TOML
        # Settings of Firebrick: `firebrick check` shows which are in force, and the source of each.
        # PORT, WEB_CONCURRENCY, RAILS_MAX_THREADS and RAILS_ENV in the environment take precedence.
        port = 3000
      TOML
      # Without a port the server listens there.
      PORT = 9292
      HUB = /\n\[hub\]\npath = "[^"\n]*"\n/.freeze
      SLO = /^slo = .*\n/.freeze

      module_function

      # The objective is a key before the first table.
      def with_objective(text, objective)
        line = "slo = #{objective.inspect}\n"
        head = text[/\A(?:(?!^[ \t]*\[).*\n)*/]
        return text.sub(SLO) { line } if head.match?(SLO)

        keys = head.sub(/(?:^[ \t]*(?:#.*)?\n)+\z/, "")
        text.dup.insert((keys.empty? ? head[/\A(?:#.*\n)*/] : keys).length, line)
      end

      def with_hub(text, path)
        text.match?(/^[ \t]*(?:\[hub\]|hub\.path\b)/) ? text : "#{text}\n[hub]\npath = #{path.inspect}\n"
      end

      # Returns the text without what the methods above add.
      def without_options(text)
        text.sub(HUB, "").sub(SLO, "")
      end

      # Returns the port; nil if the file has other addresses.
      def port(text)
        return if text.match?(/^bind *=/)

        Integer(text[/^port *= *(\d+)/, 1] || PORT)
      end
    end
  end
end
