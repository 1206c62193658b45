# frozen_string_literal: true

require "open3"
require "tmpdir"
require "rails/generators"
require "firebrick/errors"
require_relative "cable"
require_relative "dockerfile"
require_relative "gemfile"
require_relative "procfile"
require_relative "puma_conversion"
require_relative "settings_text"
require_relative "start_command"

module Firebrick
  module Generators
    # `rails generate firebrick:install`: makes Firebrick the server of a Rails app, and `rails destroy firebrick:install`
    # takes that back.
    #
    # What can fail is done first, so a refusal leaves all files as they were. A file that exists is changed by Thor's
    # action for a whole file, which shows the difference and asks; other lines than those for the server stay.
    class InstallGenerator < Rails::Generators::Base
      namespace "firebrick:install"
      desc "Makes Firebrick the app's server: firebrick.toml from config/puma.rb, Procfile, Dockerfile, Gemfile."

      class_option :hub, type: :boolean, default: false,
                         desc: "Serve Action Cable from the server itself: [hub] in firebrick.toml, the adapter in config/cable.yml"
      class_option :slo, type: :string, banner: '"p95 < 200ms"',
                         desc: "Objective of response times, which workers and threads follow"
      class_option :replace, type: :boolean, default: false, desc: "Comment out the gems puma and thruster"

      def self.exit_on_failure?
        true
      end

      def examine
        @notes = []
        check_objective if options[:slo]
        @existing = read("firebrick.toml")
        @conversion = PumaConversion.new(destination_root) if PumaConversion.possible?(destination_root)
        @settings = settings if installing?
      rescue PumaConversion::Refused => e
        raise Thor::Error,
              "#{e.message}\nMend config/puma.rb, or write firebrick.toml by hand, and run the generator again. Nothing was changed."
      rescue Firebrick::Error => e
        raise Thor::Error, "firebrick: #{e.message}"
      end

      def write_settings
        return change("firebrick.toml") { @settings } if installing?
        return unless @existing
        return remove_file_shown("firebrick.toml") if SettingsText.without_options(@existing) == original_settings

        note "firebrick.toml has lines of your own and stays; remove it by hand."
      end

      def write_gemfile
        change_existing("Gemfile") do |text|
          installing? ? Gemfile.install(text, replace: options[:replace]) : Gemfile.remove(text)
        end
      end

      def write_procfile
        return change_existing("Procfile") { |text| Procfile.remove(text) } unless installing?

        change("Procfile") { |text| Procfile.install(text.to_s, command, puma_rb) }
      end

      def write_dockerfile
        change_existing("Dockerfile") do |text|
          installing? ? Dockerfile.new(text, command, SettingsText.port(@settings)).install : Dockerfile.remove(text)
        end
        change_existing("bin/docker-entrypoint") do |text|
          installing? ? Dockerfile.install_entrypoint(text) : Dockerfile.remove_entrypoint(text)
        end
      end

      def write_cable
        return change_existing("config/cable.yml") { |text| Cable.remove(text) } unless installing?
        return unless options[:hub]
        unless cable?
          return note("The app has no Action Cable, so config/cable.yml is not written; [hub] serves events all the same.")
        end

        change("config/cable.yml") { |text| text ? Cable.install(text) : Cable::FRESH }
      end

      def tell
        installing? ? tell_next : tell_left
        return if options[:quiet] || @notes.empty?

        say "\nTo look at:"
        @notes.each { |text| say "  - #{text}" }
      end

      private

      def installing?
        behavior == :invoke
      end

      def note(text)
        @notes << text
      end

      def read(path)
        full = File.join(destination_root, path)
        File.read(full, encoding: "UTF-8") if File.file?(full)
      end

      # Yields the text of a file, or nil, and writes what the block returns: a text, with or without a note; nil removes the file.
      def change(path)
        old = read(path)
        new, remark = yield(old)
        note(remark) if remark
        return remove_file_shown(path) if new.nil?
        return say_status(:identical, path, :blue) if new == old
        return create_file(path, new) if installing?

        say_status(:restore, path)
        File.write(File.join(destination_root, path), new) unless options[:pretend]
      end

      def change_existing(path, &block)
        text = read(path)
        change(path, &block) if text && (installing? || Array(yield(text)).first != text)
      end

      # Thor's own method does nothing when a generator is taken back.
      def remove_file_shown(path)
        say_status(:remove, path, :red)
        File.delete(File.join(destination_root, path)) unless options[:pretend]
      end

      # Lets the program judge the objective, in an empty site.
      def check_objective
        Dir.mktmpdir("firebrick-install") do |folder|
          File.write(File.join(folder, "index.html"), "")
          out, status = Open3.capture2e({ "FIREBRICK_LIB" => Binary::LIB }, [Binary.find, "firebrick"], "check",
                                        folder, "--slo", options[:slo])
          raise Thor::Error, "--slo: #{out.strip.delete_prefix('error: ')}" unless status.success?
        end
      end

      def settings
        text = Marks.complete(@existing || original_settings)
        text = SettingsText.with_objective(text, options[:slo]) if options[:slo]
        options[:hub] ? SettingsText.with_hub(text, cable_path) : text
      end

      def original_settings
        @conversion ? @conversion.text : SettingsText::FRESH
      end

      # The Puma file, if the server has to read it beside firebrick.toml.
      def puma_rb
        @conversion.still_needed if @conversion && !@existing
      end

      def command
        @command ||= StartCommand.new(puma_rb)
      end

      def cable?
        Rails.application&.config.respond_to?(:action_cable) || File.file?(File.join(destination_root,
                                                                                     "config/cable.yml"))
      end

      def cable_path
        own = Rails.application.config.action_cable.mount_path if Rails.application&.config.respond_to?(:action_cable)
        own || "/cable"
      end

      def tell_next
        note_puma_file
        note_secrets
        note_gems
        note_kamal
        return if options[:quiet] || options[:pretend]

        say <<~TEXT

          Next:
            bundle install                              # writes Gemfile.lock
            bundle exec firebrick check                 # the settings in force, and the source of each
            bundle exec firebrick                       # serve; bin/rails server #{server_flag}does, too
            bundle exec firebrick deploy-check          # what starts well and goes wrong in production
        TEXT
      end

      def server_flag
        replaced? ? "" : "-u firebrick "
      end

      # Rails prefers Puma to all other servers.
      def replaced?
        text = options[:pretend] ? "" : read("Gemfile").to_s
        !Gemfile.names?(text, "puma")
      end

      def note_puma_file
        return unless puma_rb

        note "#{puma_rb} has blocks, plugins or conditions that firebrick.toml cannot hold, so the commands read it as well (-C #{puma_rb}). " \
             "firebrick.toml takes precedence. The comments in it say what is where."
      end

      def note_secrets
        return unless @settings.match?(/^(?:control_token|token) *= *"(?!\$\{)/)

        note 'firebrick.toml contains the control token in plain text: write control_token = "${NAME}", and set the variable NAME.'
      end

      def note_gems
        return if replaced?

        note "Gemfile still has puma, which `bin/rails server` prefers: type `bin/rails server -u firebrick`, or run the generator with --replace."
      end

      # Kamal's file has secrets and hosts, and stays as it is.
      def note_kamal
        text = read("config/deploy.yml") or return

        port = Dockerfile.port(read("Dockerfile").to_s, SettingsText.port(@settings))
        app_port = text[/^[ \t]+app_port:[ \t]*(\d+)/, 1] || "80"
        if port && port != app_port
          note "config/deploy.yml: kamal-proxy sends to port #{app_port}, the container listens on #{port}: write app_port: #{port} below proxy:."
        end
        note "config/deploy.yml stays as it is. In firebrick.toml, timeouts.shutdown = \"35s\" and timeouts.keep_alive = \"1h\" suit kamal-proxy (docs/kamal.md)."
      end

      def tell_left
        return if options[:quiet]

        say "\nNext: bundle install. Files that you have changed since may still name Firebrick."
      end
    end
  end
end
