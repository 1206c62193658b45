# frozen_string_literal: true

module Firebrick
  module Generators
    # The flags of a command line, each with its value: `-p 3000`, `-p3000`, `--port=3000`.
    module CommandFlags
      WORD = /(?:[^\s"']|"[^"]*"|'[^']*')+/.freeze
      JOINED = [/\A(--[a-z-]+)=(.+)\z/, /\A(-[A-Za-z])(.+)\z/].freeze

      module_function

      # Returns [flag, value] for each flag, and [word, nil] for other words and for flags without a value.
      def pairs(text)
        words = text.scan(WORD).flat_map { |word| split(word) }
        words.slice_when { |_, word| flag?(word) }.flat_map do |first, second, *others|
          head = flag?(first) ? [[first, second]] : [[first, nil], *([[second, nil]] if second)]
          head + others.map { |word| [word, nil] }
        end
      end

      def flag?(word)
        word.match?(/\A--?[A-Za-z]/)
      end

      def split(word)
        JOINED.each { |pattern| pattern.match(word) { |match| return match.captures } }
        [word]
      end
    end
  end
end
