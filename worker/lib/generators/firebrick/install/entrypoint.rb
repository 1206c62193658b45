# frozen_string_literal: true

require_relative "marks"

module Firebrick
  module Generators
    # The condition of Rails' bin/docker-entrypoint, which prepares the database before `rails server` only.
    module Entrypoint
      CONDITION = /^([ \t]*)if \[.*\brails\b.*\bserver\b.*\]; then[ \t]*\n/.freeze
      NEW_CONDITION = %(if [[ "$*" == *"bin/rails server"* || "$*" == *"bundle exec firebrick"* ]]; then\n)
      REMARK = "bin/docker-entrypoint: its condition names `rails server`; add `bundle exec firebrick`, " \
               "or the database is not prepared."

      module_function

      # Returns the text with Firebrick in its condition, and a note if that cannot be done.
      def install(text)
        return text if text.include?("firebrick") || !text.match?(/\brails\b.*\bserver\b/)
        return [text, REMARK] unless text.match?(/\A#!.*\bbash\b/) && text.match?(CONDITION)

        text.sub(CONDITION) { |line| Marks.replace(line, line[/\A[ \t]*/] + NEW_CONDITION) }
      end

      def remove(text)
        Marks.undo(text, /[ \t]*#{Regexp.escape(NEW_CONDITION)}/)
      end
    end
  end
end
