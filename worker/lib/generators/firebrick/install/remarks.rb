# frozen_string_literal: true

require_relative "dockerfile"
require_relative "gemfile"
require_relative "settings_text"

module Firebrick
  module Generators
    # The lines that the generator prints at its end: next steps, and what it leaves to people.
    module Remarks
      private

      def remark(text)
        (@remarks ||= []) << text
      end

      def print_remarks
        return if options[:quiet] || @remarks.nil?

        say "\nTo look at:"
        @remarks.each { |text| say "  - #{text}" }
      end

      def print_steps
        return if options[:quiet] || options[:pretend]
        return say("\nNext:\n  bundle install    # writes Gemfile.lock") unless installing?

        say <<~TEXT

          Next:
            bundle install                        # writes Gemfile.lock
            bundle exec firebrick check           # the settings in force, and the source of each
            bundle exec firebrick                 # serves, as does bin/rails server#{' -u firebrick' if puma?}
            bundle exec firebrick deploy-check    # what starts well and goes wrong in production
        TEXT
      end

      # Rails prefers Puma to all other servers.
      def puma?
        Gemfile.names?(read("Gemfile").to_s, "puma")
      end

      def remark_puma
        return if options[:pretend] || !puma?

        remark "Gemfile: puma is still there, and `bin/rails server` prefers it: type " \
               "`bin/rails server -u firebrick`, or run the generator with --replace."
      end

      def remark_puma_file(path)
        return unless path

        remark "#{path}: blocks, plugins or conditions have no place in firebrick.toml, so the commands read this " \
               "file, too (-C #{path}). Where both set a value, firebrick.toml takes precedence."
      end

      def remark_token(settings)
        return unless settings.match?(/^control_token *= *"(?!\$\{)/)

        remark "firebrick.toml: the control token is written out; name a variable instead: " \
               'control_token = "${NAME}"'
      end

      # Kamal's file names hosts and secrets, and stays as it is.
      def remark_kamal(settings)
        text = read("config/deploy.yml") or return

        port = Dockerfile.port(read("Dockerfile").to_s, SettingsText.port(settings))
        proxied = text[/^[ \t]+app_port:[ \t]*(\d+)/, 1] || "80"
        unless [nil, proxied].include?(port)
          remark "config/deploy.yml: kamal-proxy sends to port #{proxied}, the container listens on #{port}: " \
                 "write `app_port: #{port}` below `proxy:`."
        end
        remark "firebrick.toml: for kamal-proxy, timeouts.shutdown = \"35s\" and timeouts.keep_alive = \"1h\" " \
               "(docs/kamal.md). config/deploy.yml was not changed."
      end
    end
  end
end
