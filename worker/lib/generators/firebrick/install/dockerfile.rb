# frozen_string_literal: true

require "json"
require_relative "marks"

module Firebrick
  module Generators
    # CMD and EXPOSE of the Dockerfile, and the condition of its entrypoint, which prepares the database for Puma only.
    class Dockerfile
      # Lines of an instruction; a backslash continues it.
      CMD = /^CMD[ \t]+((?:.*\\\n)*.*)\n/i.freeze
      OWN = /(?:ENV PORT="\d+"|EXPOSE \d+|CMD .*\bfirebrick\b.*)\n/.freeze
      CONDITION = /^[ \t]*if \[.*\brails\b.*\bserver\b.*\]; then[ \t]*\n/.freeze
      NEW_CONDITION = %(if [[ "$*" == *"bin/rails server"* || "$*" == *"bundle exec firebrick"* ]]; then\n)

      # +port+: the port of firebrick.toml; nil if it has other addresses.
      def initialize(text, command, port)
        @text = Marks.complete(text)
        @command = command
        @port = port
      end

      # Returns the text with Firebrick's lines, and a note if its command cannot be translated.
      def install
        old = @text.scan(CMD).last&.first
        return @text if old&.match?(/\bfirebrick\b/)
        return [@text, "Dockerfile: there is no CMD; write: CMD [\"bundle\", \"exec\", \"firebrick\"]"] unless old

        new = translate(old)
        unless new
          return [@text,
                  "Dockerfile: `CMD #{old.tr("\n",
                                             ' ')}` cannot be translated; write: CMD [\"bundle\", \"exec\", \"firebrick\"]"]
        end

        head, line, rest = @text.rpartition(/^CMD[ \t]+#{Regexp.escape(old)}\n/i)
        head + Marks.replace(line, "#{address(old, new)}CMD #{new}\n") + rest
      end

      def self.remove(text)
        Marks.undo(text, OWN)
      end

      # The port on which the container listens; nil if it is not known.
      def self.port(text, configured)
        text[/^ENV PORT[= ]"?(\d+)/, 1] || text[/^CMD .*firebrick.*-p"?,? ?"?(\d+)/, 1] || configured&.to_s
      end

      # Returns the entrypoint with Firebrick in its condition, and a note if that cannot be done.
      def self.install_entrypoint(text)
        return text if text.include?("firebrick") || !text.match?(/\brails\b.*\bserver\b/)

        bash = text.match?(/\A#!.*\bbash\b/)
        if !bash || !text.match?(CONDITION)
          return [text,
                  "bin/docker-entrypoint: its condition names `rails server`; add `bundle exec firebrick`, or the database is not prepared"]
        end

        text.sub(CONDITION) { |line| Marks.replace(line, line[/\A[ \t]*/] + NEW_CONDITION) }
      end

      def self.remove_entrypoint(text)
        Marks.undo(text, /[ \t]*#{Regexp.escape(NEW_CONDITION)}/)
      end

      private

      # Keeps the form: a list of words, or a line for a shell.
      def translate(old)
        return @command.translate(old.gsub("\\\n", " ")) unless old.start_with?("[")

        words = JSON.parse(old.gsub("\\\n", " "))
        new = @command.translate(words.join(" ")) if words.none? { |word| word.match?(/\s/) }
        new && "[#{new.split.map { |word| JSON.generate(word) }.join(', ')}]"
      rescue JSON::ParserError
        nil
      end

      # The exposed port stays, and with it what publishes it; the server listens there.
      def address(old, new)
        exposed = @text.scan(/^EXPOSE[ \t]+(\d+)/i).last&.first
        typed = new[/-p"?,? ?"?(\d+)/, 1]
        port = exposed || typed || (old.include?("thrust") ? "80" : @port&.to_s)
        return "" unless port

        decided = typed || @text.match?(/^ENV[ \t].*\bPORT[= ]/) || port == @port&.to_s
        "#{%(EXPOSE #{port}\n) unless exposed}#{%(ENV PORT="#{port}"\n) unless decided}"
      end
    end
  end
end
