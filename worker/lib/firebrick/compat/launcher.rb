# frozen_string_literal: true

module Firebrick
  module Compat
    # Stands in for `Puma::Launcher` as the argument of a plugin's `start`. It controls the server by signals.
    class Launcher
      # The part of `launcher.config` that plugins read.
      Config = Struct.new(:options) do
        def environment
          options[:environment]
        end
      end

      attr_reader :events, :log_writer, :options, :config

      def initialize(file)
        @events = Events.new
        @log_writer = LogWriter.stdio
        @log_writer.formatter = file.options[:log_formatter] if file.options[:log_formatter]
        @log_writer.custom_logger = file.options[:custom_logger]
        @options = defaults.merge(file.options, events: @events)
        @config = Config.new(@options)
      end

      # Replaces the workers, and this process, with new code.
      def restart
        signal("USR1")
      end
      alias phased_restart restart

      def stop
        signal("TERM")
      end
      alias halt stop

      def stats
        PumaStats.new.stats
      end

      private

      def defaults
        { environment: ENV.fetch("RACK_ENV", "development"), workers: 1, min_threads: 1, max_threads: 5,
          tag: File.basename(Dir.pwd), rackup: "config.ru", directory: Dir.pwd }
      end

      def signal(name)
        Process.kill(name, Template.front)
      rescue Errno::ESRCH
        false
      end
    end
  end
end
