# frozen_string_literal: true

module Firebrick
  module Generators
    # Translates a command that starts Puma, perhaps behind Thruster, into one that starts Firebrick.
    #
    # Firebrick understands Puma's flags. Those of `rails server` have other names; +nil+ is returned for a command with
    # flags that have no equivalent, and for any other program.
    class StartCommand
      RENAMED = {
        "-p" => "-p", "--port" => "-p", "-e" => "-e", "--environment" => "-e", "-b" => "--host", "--binding" => "--host",
        "-P" => "--pidfile", "--pid" => "--pidfile"
      }.freeze
      DROPPED = %w[-u --using].freeze
      # What may stand before the program: variables, and other commands before `&&` or `;`.
      BEFORE = /\A(?:.*(?:&&|;)\s+)?(?:(?:exec|env|[A-Za-z_]\w*=\S*)\s+)*/.freeze
      THRUST = %r{(?:bundle exec |(?:\./)?bin/)?thrust }.freeze
      PROGRAM = %r{(?:bundle exec )?(?:\./)?(?:bin/)?(?:(?<puma>puma)|rails (?:server|s))(?=\s|\z)}.freeze
      WORD = /(?:[^\s"']|"[^"]*"|'[^']*')+/.freeze

      # +puma_rb+: the path of the Puma file that stays in use, or nil.
      def initialize(puma_rb)
        @puma_rb = puma_rb
      end

      def translate(command)
        match = /(?<before>#{BEFORE.source})(?:#{THRUST.source})?#{PROGRAM.source}(?<flags>.*)\z/.match(command.strip)
        return unless match&.pre_match == ""

        words = match[:flags].scan(WORD)
        flags = match[:puma] ? puma_flags(words) : rails_flags(words)
        flags && (match[:before] + ["bundle exec firebrick", *puma_file(words), *flags].join(" "))
      end

      private

      def puma_flags(words)
        flags = pairs(words)
        flags.reject { |flag, value| %w[-C --config].include?(flag) && default_file?(value) }.flatten.compact
      end

      def puma_file(words)
        named = pairs(words).any? { |flag, value| %w[-C --config].include?(flag) && !default_file?(value) }
        @puma_rb && !named ? ["-C", @puma_rb] : []
      end

      def default_file?(path)
        %w[config/puma.rb ./config/puma.rb].include?(path) || path == @puma_rb
      end

      def rails_flags(words)
        pairs(words).flat_map do |flag, value|
          next [] if DROPPED.include?(flag) || (flag == "puma" && value.nil?)
          next [flag] if flag == "--early-hints"

          [RENAMED[flag] || return, value || return]
        end
      end

      # Flags with their values: `-p 3000`, `-p3000`, `--port=3000`.
      def pairs(words)
        words = words.flat_map do |word|
          (/\A(--[a-z-]+)=(.+)\z/.match(word) || /\A(-[A-Za-z])(.+)\z/.match(word))&.captures || [word]
        end
        words.slice_when { |_, word| word.match?(/\A-\w|\A--\w/) }.flat_map do |flag, *values|
          if flag.start_with?("-")
            [[flag, values.shift], *values.map do |word|
                                     [word, nil]
                                   end]
          else
            [flag, *values].map do |word|
              [word, nil]
            end
          end
        end
      end
    end
  end
end
