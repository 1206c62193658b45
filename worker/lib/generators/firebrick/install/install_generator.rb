# frozen_string_literal: true

require "open3"
require "tmpdir"
require "rails/generators"
require "firebrick/errors"
require_relative "cable"
require_relative "dockerfile"
require_relative "entrypoint"
require_relative "file_changes"
require_relative "gemfile"
require_relative "procfile"
require_relative "puma_conversion"
require_relative "remarks"
require_relative "settings_text"
require_relative "start_command"

module Firebrick
  module Generators
    # `rails generate firebrick:install`: makes Firebrick the server of a Rails app. `rails destroy firebrick:install`
    # takes that back.
    #
    # Steps that can fail come first, so a refusal leaves all files as they were. Replaced lines stay as comments
    # (Marks). A second run changes nothing.
    class InstallGenerator < Rails::Generators::Base
      include FileChanges
      include Remarks

      namespace "firebrick:install"
      desc "Makes Firebrick the server: firebrick.toml from config/puma.rb, Procfile, Dockerfile, Gemfile."

      class_option :hub, type: :boolean, default: false,
                         desc: "The server holds Action Cable's WebSockets: [hub], and the adapter in config/cable.yml"
      class_option :slo, type: :string, banner: '"p95 < 200ms"',
                         desc: "Objective of response times, which workers and threads follow"
      class_option :replace, type: :boolean, default: false, desc: "Comment out the gems puma and thruster"

      def self.exit_on_failure?
        true
      end

      def examine
        check_objective if options[:slo]
        @existing = read("firebrick.toml")
        @conversion = PumaConversion.new(destination_root) if PumaConversion.possible?(destination_root)
        @settings = settings if installing?
      rescue PumaConversion::Refused => e
        raise Thor::Error, "#{e.message}\nMend it, or write firebrick.toml by hand; then run the generator again."
      rescue Firebrick::Error => e
        raise Thor::Error, "firebrick: #{e.message}"
      end

      def write_settings
        return change("firebrick.toml") { @settings } if installing?
        return unless @existing
        return delete("firebrick.toml") if SettingsText.without_options(@existing) == original_settings

        remark "firebrick.toml: it has other lines than the generator wrote, and stays; delete it by hand."
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
      end

      def write_entrypoint
        change_existing("bin/docker-entrypoint") do |text|
          installing? ? Entrypoint.install(text) : Entrypoint.remove(text)
        end
      end

      def write_cable
        return change_existing("config/cable.yml") { |text| Cable.remove(text) } unless installing?
        return unless options[:hub]
        return change("config/cable.yml") { |text| text ? Cable.install(text) : Cable::FRESH } if cable?

        remark "config/cable.yml: the app has no Action Cable, so the file is not written; [hub] serves events only."
      end

      def say_next
        if installing?
          remark_puma_file(puma_rb)
          remark_token(@settings)
          remark_puma
          remark_kamal(@settings)
        end
        print_steps
        print_remarks
      end

      private

      # The program itself judges the objective, in an empty site.
      def check_objective
        Dir.mktmpdir("firebrick-install") do |folder|
          File.write(File.join(folder, "index.html"), "")
          out, status = Open3.capture2e([Binary.find, "firebrick"], "check", folder, "--slo", options[:slo])
          raise Thor::Error, out.strip.delete_prefix("error: ") unless status.success?
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
        StartCommand.new(puma_rb)
      end

      def cable?
        Rails.application&.config.respond_to?(:action_cable)
      end

      def cable_path
        (Rails.application.config.action_cable.mount_path if cable?) || "/cable"
      end
    end
  end
end
