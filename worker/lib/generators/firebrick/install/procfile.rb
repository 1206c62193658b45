# frozen_string_literal: true

require_relative "marks"

module Firebrick
  module Generators
    # The line `web:` of a Procfile.
    module Procfile
      WEB = /^web:[ \t]*(.*)\n/.freeze

      module_function

      # The Procfile of an app that has none.
      def fresh(puma_rb)
        "web: #{['bundle exec firebrick', *("-C #{puma_rb}" if puma_rb), '-e ${RAILS_ENV:-production}'].join(' ')}\n"
      end

      # Returns the text with Firebrick's line, and a note if the line cannot be translated.
      def install(text, command, puma_rb)
        text = Marks.complete(text)
        old = text[WEB, 1]
        return text + fresh(puma_rb) unless old
        return text if old.match?(/\bfirebrick\b/)

        new = command.translate(old)
        return [text, "Procfile: `web: #{old}` cannot be translated; write: #{fresh(puma_rb).chomp}"] unless new

        text.sub(WEB) { |line| Marks.replace(line, "web: #{new}\n") }
      end

      # Returns nil if nothing is left.
      def remove(text)
        left = Marks.undo(text, /web: .*\bfirebrick\b.*\n/)
        left = left.delete_suffix(left.lines.last.to_s) if [fresh(nil),
                                                            left[/^web: bundle exec firebrick -C \S+ -e \$\{RAILS_ENV:-production\}\n\z/]].include?(left.lines.last)
        left unless left.empty?
      end
    end
  end
end
