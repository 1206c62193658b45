# frozen_string_literal: true

require "etc"

module Firebrick
  class PumaFile
    # What a puma.rb is evaluated in: the methods of Puma's DSL, 5 to 8, under all their names. They judge nothing; what
    # they mean is decided by the front (crates/settings/src/puma).
    class DSL # rubocop:disable Metrics/ClassLength -- one method for each of Puma's
      # Stands for an argument that was not given.
      NONE = Object.new.freeze

      # Defines a method that sets an option to its argument.
      def self.setter(name, option = name)
        define_method(name) { |value| set(name, [value], option => value) }
      end

      # The same where the argument can be left out.
      def self.optional(name, default, option = name)
        define_method(name) do |value = NONE|
          given = value.equal?(NONE) ? [] : [value]
          set(name, given, option => given.empty? ? default : value)
        end
      end

      # Defines methods that keep a block. Some of Puma's versions give it a Hash under a key.
      def self.hook(name, *also)
        [name, *also].each do |method|
          define_method(method) do |key = nil, &block|
            raise ArgumentError, "#{method} needs a block" unless block

            record(method, [key].compact, block)
            file.blocks[name] << [key&.to_sym, block]
          end
        end
      end

      %i[
        persistent_timeout first_data_timeout idle_timeout environment restart_command pidfile custom_logger state_path
        state_permission tag worker_check_interval worker_timeout worker_boot_timeout worker_shutdown_timeout
        worker_culling_strategy io_selector_backend http_content_length_limit supported_http_methods max_keep_alive
        max_fast_inline max_io_threads directory
      ].each { |name| setter name }
      %i[
        fiber_per_request clean_thread_locals drain_on_shutdown early_hints preload_app! prune_bundler
        raise_exception_on_sigterm queue_requests allow_underscore_headers enable_keep_alives bind_to_activated_sockets
        mutate_stdout_and_stderr_to_sync_on_write nakayoshi_fork log_requests
      ].each { |name| optional name, true, name.to_s.delete_suffix("!").to_sym }
      optional :force_shutdown_after, :forever
      optional :wait_for_less_busy_worker, 0.005
      optional :fork_worker, 1000
      optional :rack_url_scheme, nil
      optional :extra_runtime_dependencies, []
      setter :set_default_host, :default_host

      hook :before_fork
      hook :before_worker_boot, :on_worker_boot
      hook :before_worker_shutdown, :on_worker_shutdown
      hook :before_worker_fork, :on_worker_fork
      hook :after_worker_fork, :after_worker_boot
      hook :after_worker_shutdown
      hook :before_refork, :on_refork
      hook :after_refork
      hook :before_thread_start, :on_thread_start
      hook :before_thread_exit, :on_thread_exit
      hook :out_of_band
      hook :after_booted, :on_booted
      hook :after_stopped, :on_stopped
      hook :before_restart, :on_restart

      def port(port, host = nil)
        record(:port, [port, host].compact)
        (@options[:binds] ||= []) << "tcp://#{host || @options[:default_host] || '0.0.0.0'}:#{port}"
      end

      def bind(url)
        record(:bind, [url])
        (@options[:binds] ||= []) << url
      end

      def ssl_bind(host, port, opts = {})
        record(:ssl_bind, [host, port, opts])
        (@options[:binds] ||= []) << "ssl://#{host}:#{port}"
      end

      def clear_binds!
        set(:clear_binds!, [], binds: [])
      end

      def default_host
        record(:default_host, [])
        @options[:default_host] || "0.0.0.0"
      end

      def threads(min, max = min)
        set(:threads, [min, max], min_threads: whole(min), max_threads: whole(max))
      end

      def workers(count)
        number = count.to_s == "auto" ? Etc.nprocessors : whole(count)
        set(:workers, [count], workers: number || 0)
      end

      # The first one counts.
      def rackup(path)
        set(:rackup, [path], rackup: @options[:rackup] || path.to_s)
      end

      def app(obj = nil, &block)
        set(:app, [], app: needed(obj, block))
      end

      def lowlevel_error_handler(obj = nil, &block)
        set(:lowlevel_error_handler, [], lowlevel_error_handler: needed(obj, block))
      end

      def log_formatter(&block)
        record(:log_formatter, [], block)
        @options[:log_formatter] = block
      end

      def quiet(which = true) # rubocop:disable Style/OptionalBooleanParameter
        set(:quiet, [which], log_requests: !which)
      end

      def debug
        set(:debug, [], debug: true)
      end

      def silence_single_worker_warning
        set(:silence_single_worker_warning, [], silence_single_worker_warning: true)
      end

      def silence_fork_callback_warning
        set(:silence_fork_callback_warning, [], silence_fork_callback_warning: true)
      end

      def shutdown_debug(val = true, on_force: false) # rubocop:disable Style/OptionalBooleanParameter
        set(:shutdown_debug, [val], shutdown_debug: val && on_force ? :on_force : val)
      end

      def stdout_redirect(stdout = nil, stderr = nil, append = false) # rubocop:disable Style/OptionalBooleanParameter
        set(:stdout_redirect, [stdout, stderr, append],
            redirect_stdout: stdout, redirect_stderr: stderr, redirect_append: append)
      end

      def activate_control_app(url = "auto", opts = {})
        options = { control_url: url, control_auth_token: opts[:auth_token] }
        set(:activate_control_app, [url, (opts unless opts.empty?)].compact, **options)
      end

      def set_remote_address(val = :socket)
        set(:set_remote_address, [val], remote_address: val)
      end

      def single(&block)
        keep(:single, block)
      end

      def cluster(&block)
        keep(:cluster, block)
      end

      def plugin(name)
        record(:plugin, [name])
        return if name.to_s == "tmp_restart"

        @plugins << file.background.plugin(name)
        follow_new_methods
      end

      def load(path)
        record(:load, [path])
        file.read(path, self)
      end

      def inject(&block)
        record(:inject, [], block)
        instance_eval(&block)
      end

      def get(key, default = nil)
        record(:get, [key])
        @options[key.to_sym] || default
      end

      # All that is public up to here is Puma's.
      PUMAS = public_instance_methods(false).freeze

      def initialize(file)
        @file = file
        @options = file.options
        @plugins = []
      end

      def read(path)
        file.read(path, self)
      end

      # Plugins may have settings of their own.
      def offer_plugins
        @plugins.each { |plugin| plugin.config(self) if plugin.respond_to?(:config) }
      end

      private

      attr_reader :file

      def record(method, arguments, block = nil)
        file.record(method, arguments, block)
      end

      def set(method, arguments, **options)
        record(method, arguments)
        @options.merge!(options)
      end

      def keep(name, block)
        raise ArgumentError, "#{name} needs a block" unless block

        record(name, [], block)
        file.blocks[name] << block
      end

      def needed(object, block)
        object || block || raise(ArgumentError, "expected a block, or an object with the method call")
      end

      # What is no number is judged by the front.
      def whole(value)
        Integer(value, exception: false)
      end

      # Methods that a plugin's file has added to Puma::DSL, which is this class: they are recorded, too.
      def follow_new_methods
        added = self.class.public_instance_methods(false) - PUMAS - OWN
        recorder = Module.new
        added.each do |name|
          recorder.define_method(name) do |*arguments, **keywords, &block|
            record(name, keywords.empty? ? arguments : [*arguments, keywords], block)
            super(*arguments, **keywords, &block)
          end
        end
        singleton_class.prepend(recorder)
      end

      def method_missing(name, *_arguments)
        raise UnknownMethod, name
      end

      def respond_to_missing?(*)
        false
      end

      OWN = %i[read offer_plugins].freeze
      private_constant :OWN
    end
  end
end
