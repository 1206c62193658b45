# frozen_string_literal: true

module Firebrick
  class PumaFile
    # `@config` of a puma.rb, standing in for `Puma::Configuration`: files read the current settings from it.
    class Configuration
      attr_reader :options

      def initialize(file)
        @options = Options.new(file)
      end

      def environment
        @options[:environment]
      end

      def rackup
        @options[:rackup]
      end

      # Puma's method would read the file.
      def load
        self
      end
      alias clamp load

      # Values by precedence: typed options, then the file, then defaults, as in `Puma::UserFileDefaultOptions`.
      class Options
        DEFAULTS = {
          binds: ["tcp://[::]:9292"].freeze, debug: false, first_data_timeout: 30, force_shutdown_after: -1,
          io_selector_backend: :auto, log_requests: false, logger: "stdout", max_threads: 3, min_threads: 1,
          mode: :http, persistent_timeout: 65, preload_app: true, rackup: "config.ru", remote_address: :socket,
          worker_boot_timeout: 60, worker_check_interval: 5, worker_shutdown_timeout: 30, worker_timeout: 60,
          workers: 0
        }.freeze

        attr_reader :user_options, :file_options

        def initialize(file)
          @user_options = { workers: PumaFile.number(file.workers), environment: file.environment }.compact
          @file_options = file.options
        end

        def default_options
          { **DEFAULTS, environment: "development", tag: File.basename(Dir.pwd), directory: Dir.pwd }
        end

        def [](key)
          levels.find { |level| level.key?(key) }&.fetch(key)
        end

        def fetch(key, *default, &block)
          final_options.fetch(key, *default, &block)
        end

        def []=(key, value)
          @file_options[key] = value
        end

        def key?(key)
          levels.any? { |level| level.key?(key) }
        end

        def dig(key, *keys)
          final_options.dig(key, *keys)
        end

        # Returns the values of all levels.
        def all_of(key)
          levels.flat_map { |level| Array(level[key]) }
        end

        def final_options
          default_options.merge(@file_options, @user_options)
        end
        alias to_h final_options

        private

        def levels
          [@user_options, @file_options, default_options]
        end
      end
    end
  end
end
