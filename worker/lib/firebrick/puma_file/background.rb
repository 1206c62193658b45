# frozen_string_literal: true

require "firebrick/report"

module Firebrick
  class PumaFile
    # The parts of a puma.rb that run beside the workers: one service per plugin, so that the death of one affects
    # neither the server nor another plugin; and one service for `after_booted`, `before_restart`, `after_stopped`.
    class Background
      # The name of the service for the file's own blocks.
      NAME = "puma"
      # Seconds that a plugin has for stopping: Solid Queue lets its jobs finish.
      STOP_TIMEOUT = 15

      def initialize(file)
        @file = file
        @plugins = {}
      end

      # Loads the plugin of this name from a gem.
      def plugin(name)
        @plugins[name.to_s] ||= ::Puma::Plugins.find(name).new
      end

      def plugins
        @plugins.keys
      end

      # Declares the services. Called before the app is loaded; no plugin can be added later.
      def declare
        @plugins.each do |name, plugin|
          next unless plugin.respond_to?(:start)

          declare_one("plugin :#{name}", service_name(name)) { |launcher| plugin.start(launcher) }
        end
        return unless blocks?

        declare_one("after_booted and after_stopped", NAME) { |launcher| subscribe(launcher.events) }
      end

      # This process cannot tell a stop from a restart, so the blocks for both run.
      def subscribe(events)
        blocks = @file.blocks
        blocks[:after_booted].each { |_, block| events.after_booted(&block) }
        [*blocks[:before_restart], *blocks[:after_stopped]].each { |_, block| events.after_stopped(&block) }
      end

      private

      def blocks?
        %i[after_booted after_stopped before_restart].any? { |name| @file.blocks.key?(name) }
      end

      # Declares one service.
      def declare_one(what, name, &start)
        if Firebrick.respond_to?(:service)
          Firebrick.service(name, stop_timeout: STOP_TIMEOUT) { |service| run(service, &start) }
        else
          Report.log("firebrick: #{@file.path}: #{what} does not run: there are no services of the app in this version")
        end
      end

      # Runs in the service's process until it is asked to stop.
      def run(service)
        launcher = Compat::Launcher.new(@file)
        yield launcher
        ::Puma::Plugins.fire_background
        launcher.events.fire(:after_booted)
        service.wait
        launcher.events.fire(:after_stopped)
      end

      def service_name(plugin)
        plugin == NAME ? "puma-plugin" : plugin.tr("^A-Za-z0-9_-", "-")
      end
    end
  end
end
