# frozen_string_literal: true

require "json"
require_relative "marks"

module Firebrick
  module Generators
    # CMD and EXPOSE of the Dockerfile.
    class Dockerfile
      # An instruction; a backslash continues it.
      CMD = /^CMD[ \t]+((?:.*\\\n)*.*)\n/i.freeze
      EXPOSE = /^EXPOSE[ \t]+(\d+)/i.freeze
      OWN = /(?:ENV PORT="\d+"|EXPOSE \d+|CMD .*\bfirebrick\b.*)\n/.freeze
      # Flags of a command in a line or in a list.
      TYPED_PORT = /-p"?,? ?"?(\d+)/.freeze
      REMEDY = 'write: CMD ["bundle", "exec", "firebrick"]'
      # Thruster's own.
      THRUST_PORT = "80"

      # +port+: the port of firebrick.toml; nil if it has other addresses.
      def initialize(text, command, port)
        @text = Marks.complete(text)
        @command = command
        @port = port&.to_s
      end

      # Returns the text with Firebrick's lines, and a note if its command cannot be translated.
      def install
        old = @text.scan(CMD).last&.first
        return [@text, "Dockerfile: there is no CMD; #{REMEDY}"] unless old
        return @text if old.match?(/\bfirebrick\b/)

        new = translate(old.gsub("\\\n", " "))
        return [@text, "Dockerfile: CMD #{old} cannot be translated; #{REMEDY}"] unless new

        head, line, rest = @text.rpartition(/^CMD[ \t]+#{Regexp.escape(old)}\n/i)
        head + Marks.replace(line, "#{address(old, new)}CMD #{new}\n") + rest
      end

      def self.remove(text)
        Marks.undo(text, OWN)
      end

      # The port on which the container listens; nil if it is not known.
      def self.port(text, configured)
        text[/^CMD .*\bfirebrick\b.*#{TYPED_PORT}/, 1] || text[/^ENV PORT[= ]"?(\d+)/, 1] || configured&.to_s
      end

      private

      # Keeps the form: a list of words, or a line for a shell.
      def translate(old)
        return @command.translate(old) unless old.start_with?("[")

        words = JSON.parse(old)
        new = @command.translate(words.join(" ")) if words.none? { |word| word.match?(/\s/) }
        new && "[#{new.split.map { |word| JSON.generate(word) }.join(', ')}]"
      rescue JSON::ParserError
        nil
      end

      # The exposed port stays, and with it what publishes it; the server listens there.
      def address(old, new)
        exposed = @text.scan(EXPOSE).flatten.last
        port = exposed || new[TYPED_PORT, 1] || (THRUST_PORT if old.include?("thrust")) || @port
        return "" unless port

        "#{"EXPOSE #{port}\n" unless exposed}#{variable(port, new)}"
      end

      # The instruction that makes the server listen there, if something has to.
      def variable(port, command)
        decided = port == @port || command.match?(TYPED_PORT) || @text.match?(/^ENV[ \t](?:.*[ \t])?PORT[= ]/)
        %(ENV PORT="#{port}"\n) unless decided
      end
    end
  end
end
