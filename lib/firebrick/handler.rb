# frozen_string_literal: true

require "firebrick/binary"

module Firebrick
  # `rackup -s firebrick`, `rails server -u firebrick`, Sinatra's `run!`: serves the app that this process has loaded
  # (Firebrick::Server). In production, and with a `config.ru` to load it from, this process becomes the program,
  # which has several workers and loads the app again.
  module Handler
    # Options of the handler that become the value of a flag.
    FLAGS = { Port: "--port", environment: "--environment", Threads: "--threads", pid: "--pidfile" }.freeze

    # Options of the handler that become a flag without a value.
    SWITCHES = { early_hints: "--early-hints", Silent: "--quiet" }.freeze

    # Returns when the server has ended, and yields it when it listens. Whoever becomes the program does neither.
    def run(app, **options, &)
      if Handler.becomes_program?(options)
        # A puma.rb may use what is loaded here.
        ENV["FIREBRICK_RAILS_SERVER"] = "1" if defined?(::Rails.application) && ::Rails.application
        return Binary.exec(*Handler.arguments(options))
      end

      require "firebrick/server"
      settings = Handler.server_options(options)
      server = Server.new(app, **settings)
      return server.run(&) unless options[:restart_cmd]

      require "firebrick/server/restart_file"
      Server::RestartFile.new(settings[:dir], options[:restart_cmd]).run(server, &)
    end

    def valid_options
      {
        "Host=HOST" => "Host to listen on, or the path of a Unix socket (default: from firebrick.toml)",
        "Port=PORT" => "Port to listen on (default: 9292)",
        "Threads=MIN:MAX" => "Threads per worker"
      }
    end

    # What rackup passes when nothing was typed.
    DEFAULTS = { Port: [9292], Host: ["localhost", "0.0.0.0", nil] }.freeze

    module_function

    # In production an app that can be loaded again: not one that was given as code or as an object.
    def becomes_program?(options)
      environment(options) == "production" && !options[:builder] && !rackup_file(options[:config]).nil?
    end

    # By now the app has been loaded for it.
    def environment(options)
      variables = ENV.values_at("APP_ENV", "RACK_ENV", "RAILS_ENV")
      [options[:environment], *variables].map(&:to_s).find { |name| !name.empty? } || "development"
    end

    # Options that the user has not typed are defaults: the configuration file takes precedence over them.
    def arguments(options)
      options = typed(options, :config, :pid)
      values = FLAGS.filter_map { |key, flag| [flag, options[key].to_s] if options[key] }.flatten
      switches = SWITCHES.filter_map { |key, flag| flag if options[key] }
      [*values, *listen(options[:Host]), *switches, *rackup_file(options[:config])]
    end

    # The same for a server in this process, which reads firebrick.toml, too.
    def server_options(options)
      typed = typed(options)
      {
        environment: environment(options), config: true, dir: folder(options[:config]), quiet: options[:Silent] == true,
        early_hints: typed[:early_hints] || nil, threads: typed[:Threads], port: typed[:Port], **place(typed[:Host]),
        defaults: { host: options[:Host], port: options[:Port] }.reject { |_, value| socket?(value) }
      }
    end

    # What the user has typed, as far as can be told: Rails says it; rackup's own defaults are a number, where a port
    # that was typed is text, and a host that nobody would type.
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

    def rackup_file(path)
      path if path && File.file?(path)
    end
  end
end
