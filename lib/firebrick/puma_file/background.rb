# frozen_string_literal: true

require "firebrick/report"

module Firebrick
  class PumaFile
    # What of a puma.rb runs beside the workers: each plugin in a service of its own, so that one that dies takes
    # neither the server nor another one along; and one service for `after_booted`, `before_restart`, `after_stopped`.
    class Background
      # The service of the file's own blocks.
      NAME = "puma"
      # Seconds in which a plugin has to stop: Solid Queue lets its jobs finish.
      STOP_TIMEOUT = 15

      def initialize(file)
        @file = file
        @plugins = {}
      end

      # The plugin of this name, from a gem.
      def plugin(name)
        @plugins[name.to_s] ||= ::Puma::Plugins.find(name).new
      end

      # The names of the plugins.
      def plugins
        @plugins.keys
      end

      # Before the app is loaded: from then on there can be no other services.
      def declare
        @plugins.each do |name, plugin|
          next unless plugin.respond_to?(:start)

          declare_one("plugin :#{name}", service_name(name)) { |launcher| plugin.start(launcher) }
        end
        return unless blocks?

        declare_one("after_booted and after_stopped", NAME) { |launcher| subscribe(launcher.events) }
      end

      # Whether the server stops or new code replaces this process is not known here, so both run.
      def subscribe(events)
        blocks = @file.blocks
        blocks[:after_booted].each { |_, block| events.after_booted(&block) }
        [*blocks[:before_restart], *blocks[:after_stopped]].each { |_, block| events.after_stopped(&block) }
      end

      private

      def blocks?
        %i[after_booted after_stopped before_restart].any? { |name| @file.blocks.key?(name) }
      end

      # The one place that knows what a service is.
      def declare_one(what, name, &start)
        if Firebrick.respond_to?(:service)
          Firebrick.service(name, stop_timeout: STOP_TIMEOUT) { |service| run(service, &start) }
        else
          Report.log("firebrick: #{@file.path}: #{what} does not run: there are no services of the app in this version")
        end
      end

      # In the service's process, until it is asked to stop.
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
