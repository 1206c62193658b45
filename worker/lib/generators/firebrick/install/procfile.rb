# frozen_string_literal: true

require_relative "marks"

module Firebrick
  module Generators
    # The line `web:` of a Procfile.
    module Procfile
      WEB = /^web:[ \t]*(.*)\n/.freeze
      # The end of a line that was added, not translated.
      ENVIRONMENT = "-e ${RAILS_ENV:-production}"
      ADDED = /^web: bundle exec firebrick (?:-C \S+ )?#{Regexp.escape(ENVIRONMENT)}\n\z/.freeze

      module_function

      # The line of an app that has none.
      def fresh(puma_rb)
        "web: #{['bundle exec firebrick', *("-C #{puma_rb}" if puma_rb), ENVIRONMENT].join(' ')}\n"
      end

      # Returns the text with Firebrick's line, and a note if the line cannot be translated.
      def install(text, command, puma_rb)
        text = Marks.complete(text)
        old = text[WEB, 1]
        return text + fresh(puma_rb) unless old
        return text if old.match?(/\bfirebrick\b/)

        new = command.translate(old)
        return text.sub(WEB) { |line| Marks.replace(line, "web: #{new}\n") } if new

        [text, "Procfile: `web: #{old}` cannot be translated; write: #{fresh(puma_rb).chomp}"]
      end

      # Returns nil if nothing is left.
      def remove(text)
        left = Marks.undo(text, /web: .*\bfirebrick\b.*\n/).sub(ADDED, "")
        left unless left.empty?
      end
    end
  end
end
