# frozen_string_literal: true

require "etc"
require "firebrick/puma_file/configuration"
require "firebrick/puma_file/methods"

module Firebrick
  class PumaFile
    # The default of an argument that was not given.
    NONE = Object.new.freeze

    # Puma's constants with these names, for `rackup DefaultRackup`.
    module ConfigDefault
      DefaultRackup = "config.ru" # rubocop:disable Naming/ConstantName
      DefaultTCPHost = "0.0.0.0" # rubocop:disable Naming/ConstantName
      DefaultTCPPort = 9292 # rubocop:disable Naming/ConstantName
      DefaultWorkerCheckInterval = 5 # rubocop:disable Naming/ConstantName
      DefaultWorkerTimeout = 60 # rubocop:disable Naming/ConstantName
      DefaultWorkerShutdownTimeout = 30 # rubocop:disable Naming/ConstantName
    end

    # The DSL in which a puma.rb is evaluated: the methods of Puma's DSL, versions 5 to 8, under all their names. They
    # only record calls; the front interprets them (server/ground/settings/src/puma).
    #
    # A puma.rb and its blocks look names up here before those of the app. So this class has no constants except Puma's,
    # its instance variables are Puma's, and Firebrick's own names begin with two underscores.
    class DSL # rubocop:disable Metrics/ClassLength -- one method for each of Puma's
      include ConfigDefault

      # Defines a method that sets an option to its argument.
      def self.setter(name)
        define_method(name) { |value| __set(name, [value], name => value) }
      end

      # Does the same for an optional argument.
      def self.optional(name, default)
        option = name.to_s.delete_suffix("!").to_sym
        define_method(name) do |value = NONE|
          given = value.equal?(NONE) ? [] : [value]
          __set(name, given, option => given.empty? ? default : value)
        end
      end

      # Defines methods that keep a block. In some of Puma's versions the block gets a Hash under a key.
      def self.hook(name, *also)
        [name, *also].each do |method|
          define_method(method) do |key = nil, &block|
            raise ArgumentError, "#{method} needs a block" unless block

            __record(method, [key].compact, block)
            @__file.blocks[name] << [key&.to_sym, block]
          end
        end
      end

      Methods::SETTERS.each { |name| setter name }
      Methods::OPTIONAL.each { |name, default| optional name, default }
      Methods::HOOKS.each { |name, also| hook name, *also }

      def port(port, host = nil)
        __record(:port, [port, host].compact)
        (@__file.options[:binds] ||= []) << "tcp://#{PumaFile.in_brackets(host || __default_host)}:#{port}"
      end

      def bind(url)
        __record(:bind, [url])
        (@__file.options[:binds] ||= []) << url
      end

      def ssl_bind(host, port, opts = {})
        __record(:ssl_bind, [host, port, opts])
        (@__file.options[:binds] ||= []) << "ssl://#{host}:#{port}"
      end

      def clear_binds!
        __set(:clear_binds!, [], binds: [])
      end

      def set_default_host(host) # rubocop:disable Naming/AccessorMethodName -- its name in Puma
        __set(:set_default_host, [host], default_host: host)
      end

      def default_host
        __record(:default_host, [])
        __default_host
      end

      def threads(min, max = min)
        __set(:threads, [min, max], min_threads: PumaFile.whole(min), max_threads: PumaFile.whole(max))
      end

      def workers(count)
        number = count.to_s == "auto" ? Etc.nprocessors : PumaFile.whole(count)
        __set(:workers, [count], workers: [number || 0, 0].max)
      end

      # The first call counts.
      def rackup(path)
        __set(:rackup, [path], rackup: @__file.options[:rackup] || path.to_s)
      end

      def app(obj = nil, &block)
        __set(:app, [], app: __needed(obj, block))
      end

      def lowlevel_error_handler(obj = nil, &block)
        __set(:lowlevel_error_handler, [], lowlevel_error_handler: __needed(obj, block))
      end

      def log_formatter(&block)
        __record(:log_formatter, [], block)
        @__file.options[:log_formatter] = block
      end

      def quiet(which = true) # rubocop:disable Style/OptionalBooleanParameter
        __set(:quiet, [which], log_requests: !which)
      end

      def debug
        __set(:debug, [], debug: true)
      end

      def silence_single_worker_warning
        __set(:silence_single_worker_warning, [], silence_single_worker_warning: true)
      end

      def silence_fork_callback_warning
        __set(:silence_fork_callback_warning, [], silence_fork_callback_warning: true)
      end

      def shutdown_debug(val = true, on_force: false) # rubocop:disable Style/OptionalBooleanParameter
        __set(:shutdown_debug, [val], shutdown_debug: val && on_force ? :on_force : val)
      end

      def stdout_redirect(stdout = nil, stderr = nil, append = false) # rubocop:disable Style/OptionalBooleanParameter
        __set(:stdout_redirect, [stdout, stderr, append],
              redirect_stdout: stdout, redirect_stderr: stderr, redirect_append: append)
      end

      def activate_control_app(url = "auto", opts = {})
        options = { control_url: url, control_auth_token: opts[:auth_token] }
        __set(:activate_control_app, [url, (opts unless opts.empty?)].compact, **options)
      end

      def set_remote_address(val = :socket)
        __set(:set_remote_address, [val], remote_address: val)
      end

      def single(&block)
        __keep(:single, block)
      end

      def cluster(&block)
        __keep(:cluster, block)
      end

      def plugin(name)
        __record(:plugin, [name])
        return if name.to_s == "tmp_restart"

        @__plugins << @__file.background.plugin(name)
        __follow_new_methods
      end

      def load(path)
        __record(:load, [path])
        @__file.read(path, self)
      end

      def inject(&block)
        __record(:inject, [], block)
        instance_eval(&block)
      end

      def get(key, default = nil)
        __record(:get, [key])
        @__file.options[key.to_sym] || default
      end

      # Resolves an unknown constant. Puma's own are found as where Puma evaluates the file. Rails is
      # loaded when the file names it, as in a server that Rails starts.
      def self.const_missing(name)
        return ::Rails if name == :Rails && PumaFile.current&.load_rails
        return ::Puma.const_get(name, false) if defined?(::Puma) && ::Puma.const_defined?(name, false)

        # Autoloaders of the app's classes hook in there.
        Object.const_missing(name)
      end

      # All public methods up to here are Puma's.
      PumaFile.const_set(:PUMAS, public_instance_methods(false).freeze)

      # `@config`, `@options` and `@plugins` are Puma's names: files read them, and may reuse them.
      def initialize(file)
        @__file = file
        @__plugins = @plugins = []
        @config = Configuration.new(file)
        @options = file.options
      end

      def __read(path)
        @__file.read(path, self)
      end

      # Lets plugins add their own settings.
      def __offer_plugins
        @__plugins.each { |plugin| plugin.config(self) if plugin.respond_to?(:config) }
      end

      private

      def __record(method, arguments, block = nil)
        @__file.record(method, arguments, block)
      end

      def __set(method, arguments, **options)
        __record(method, arguments)
        @__file.options.merge!(options)
      end

      # Chooses the host as Puma 8 does.
      def __default_host
        @__file.options[:default_host] || (PumaFile.ipv6? ? "::" : "0.0.0.0")
      end

      def __keep(name, block)
        raise ArgumentError, "#{name} needs a block" unless block

        __record(name, [], block)
        @__file.blocks[name] << block
      end

      def __needed(object, block)
        object || block || raise(ArgumentError, "expected a block, or an object with the method call")
      end

      # Records calls of methods that a plugin's file has added to Puma::DSL, which is this class.
      def __follow_new_methods
        added = self.class.public_instance_methods(false) - PUMAS - OWN
        recorder = Module.new
        added.each do |name|
          recorder.define_method(name) do |*arguments, **keywords, &block|
            __record(name, keywords.empty? ? arguments : [*arguments, keywords], block)
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
    end

    # Public methods that are not Puma's.
    OWN = %i[__read __offer_plugins].freeze
  end
end
