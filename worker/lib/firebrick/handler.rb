# frozen_string_literal: true

require "firebrick/binary"

module Firebrick
  # `rackup -s firebrick`, `rails server -u firebrick`, Sinatra's `run!`: serves the app that this process has loaded
  # (Firebrick::Server). In production, and without the native part of the worker, if there is a `config.ru` to load it
  # from, this process becomes the `firebrick` program, which has several workers and loads the app again.
  module Handler
    # Options of the handler that become a flag with a value.
    FLAGS = { Port: "--port", environment: "--environment", Threads: "--threads", pid: "--pidfile" }.freeze

    # Options of the handler that become a flag without a value.
    SWITCHES = { early_hints: "--early-hints", Silent: "--quiet" }.freeze

    # Yields the server when it listens, and returns when it has ended. Does neither if this process becomes the
    # program.
    def run(app, **options, &block)
      if Handler.becomes_program?(options)
        # Tells a puma.rb that Rails has been loaded here.
        ENV["FIREBRICK_RAILS_SERVER"] = "1" if defined?(::Rails.application) && ::Rails.application
        return Binary.exec(*Handler.arguments(options))
      end

      require "firebrick/server"
      settings = Handler.server_options(options)
      server = Server.new(app, **settings)
      return server.run(&block) unless options[:restart_cmd]

      require "firebrick/server/restart_file"
      Server::RestartFile.new(settings[:dir], options[:restart_cmd]).run(server, &block)
    end

    def valid_options
      {
        "Host=HOST" => "Host to listen on, or the path of a Unix socket (default: from firebrick.toml)",
        "Port=PORT" => "Port to listen on (default: 9292)",
        "Threads=MIN:MAX" => "Threads per worker"
      }
    end

    # The values that rackup passes by default.
    DEFAULTS = { Port: [9292], Host: ["localhost", "0.0.0.0", nil] }.freeze

    module_function

    # Returns whether this process becomes the program: in production, and where it cannot serve, if the app was not
    # given as code or as an object.
    def becomes_program?(options)
      return false if options[:builder] || rackup_file(options[:config]).nil?

      environment(options) == "production" || !serves_here?
    end

    # Returns whether this process can serve: it needs the native part of the worker.
    def serves_here?
      require "firebrick/native"
      Native.respond_to?(:attach)
    end

    # Returns the environment for which the app has been loaded.
    def environment(options)
      variables = ENV.values_at("APP_ENV", "RACK_ENV", "RAILS_ENV")
      [options[:environment], *variables].map(&:to_s).find { |name| !name.empty? } || "development"
    end

    # Options that the user has not typed are defaults, over which the configuration file takes precedence.
    def arguments(options)
      options = typed(options, :config, :pid)
      values = FLAGS.flat_map { |key, flag| options[key] ? [flag, options[key].to_s] : [] }
      switches = SWITCHES.select { |key, _| options[key] }.values
      [*values, *listen(options[:Host]), *switches, *rackup_file(options[:config])]
    end

    # Returns the options of a server in this process, which reads firebrick.toml, too.
    def server_options(options)
      typed = typed(options)
      {
        environment: environment(options), config: true, dir: folder(options[:config]), quiet: options[:Silent] == true,
        early_hints: typed[:early_hints] || nil, threads: typed[:Threads], port: typed[:Port], **place(typed[:Host]),
        defaults: { host: options[:Host], port: options[:Port] }.reject { |_, value| socket?(value) }
      }
    end

    # Returns the options that the user has typed. Rails passes them separately. With rackup a default port is a number,
    # where a typed port is text, and a default host is one that a user would not type.
    def typed(options, *others)
      typed = options[:user_supplied_options]
      return options.slice(*typed, *others) if typed
      return options unless options.key?(:config)

      options.reject { |key, value| DEFAULTS.fetch(key, []).include?(value) }
    end

    def place(host)
      return {} unless host

      socket?(host) ? { bind: listen(host).last } : { host: host }
    end

    def socket?(host)
      host.is_a?(String) && listen(host).first == "--bind"
    end

    def listen(host)
      case host
      when nil then []
      when %r{\A[/.]} then ["--bind", "unix://#{File.expand_path(host)}"]
      when /\A@/ then ["--bind", "unix://#{host}"]
      when %r{\A[a-z]+://} then ["--bind", host]
      else ["--host", host]
      end
    end

    def folder(config)
      file = rackup_file(config)
      file ? File.dirname(File.expand_path(file)) : Dir.pwd
    end

    # A daemon (`rails server -d`) has left the folder to which Rails' path is relative.
    def rackup_file(path)
      return unless path

      root = ::Rails.root if defined?(::Rails.root)
      [path, *(File.expand_path(path, root) if root)].find { |file| File.file?(file) }
    end
  end
end
