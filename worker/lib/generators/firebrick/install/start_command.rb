# frozen_string_literal: true

require_relative "command_flags"

module Firebrick
  module Generators
    # Translates a command that starts Puma, perhaps behind Thruster, into one that starts Firebrick.
    #
    # Firebrick understands Puma's flags. The options of `rails server` have other names; +nil+ is returned for a
    # command with flags that have no equivalent, and for any other program.
    class StartCommand
      # Flags of `rails server`.
      RENAMED = {
        "-p" => "-p", "--port" => "-p", "-e" => "-e", "--environment" => "-e", "-b" => "--host",
        "--binding" => "--host", "-P" => "--pidfile", "--pid" => "--pidfile"
      }.freeze
      # They name the server.
      DROPPED = %w[-u --using].freeze
      # Flags of Puma that name its file.
      PUMA_FILE = %w[-C --config].freeze
      DEFAULT_FILES = %w[config/puma.rb ./config/puma.rb].freeze
      # Variables may stand before the program, and other commands that end in `&&` or `;`.
      BEFORE = /(?<before>(?:.*(?:&&|;)\s+)?(?:(?:exec|env|[A-Za-z_]\w*=\S*)\s+)*)/.freeze
      THRUST = %r{(?:(?:bundle exec |(?:\./)?bin/)?thrust )?}.freeze
      PROGRAM = %r{(?:bundle exec )?(?:\./)?(?:bin/)?(?:(?<puma>puma)|rails (?:server|s))(?=\s|\z)}.freeze
      COMMAND = /\A#{BEFORE}#{THRUST}#{PROGRAM}(?<flags>.*)\z/.freeze

      # +puma_rb+: the path of the Puma file that stays in use, or nil.
      def initialize(puma_rb)
        @puma_rb = puma_rb
      end

      def translate(command)
        match = COMMAND.match(command.strip) or return

        pairs = CommandFlags.pairs(match[:flags])
        flags = match[:puma] ? puma_flags(pairs) : rails_flags(pairs)
        flags && ["#{match[:before]}bundle exec firebrick", *flags].join(" ")
      end

      private

      def puma_flags(pairs)
        files, others = pairs.partition { |flag, _| PUMA_FILE.include?(flag) }
        own = files.reject { |_, path| DEFAULT_FILES.include?(path) || path == @puma_rb }
        [*(own.empty? ? puma_file : own), *others].flatten.compact
      end

      def rails_flags(pairs)
        known = pairs.reject { |pair| DROPPED.include?(pair.first) || pair == ["puma", nil] }
        switches, others = known.partition { |pair| pair == ["--early-hints", nil] }
        renamed = others.map { |flag, value| [RENAMED[flag], value] }
        [*puma_file, *switches.flatten.compact, *renamed.flatten] if renamed.flatten.all?
      end

      def puma_file
        @puma_rb ? ["-C", @puma_rb] : []
      end
    end
  end
end
