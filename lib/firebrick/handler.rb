# frozen_string_literal: true

require "firebrick/binary"

module Firebrick
  # `rackup -s firebrick`, `rails server -u firebrick`: turns the options of Rack handlers into arguments of the
  # program and replaces this process by it. The program loads the app again, from its `config.ru`.
  module Handler
    # Options of the handler that become the value of a flag.
    FLAGS = { Port: "--port", environment: "--environment", Threads: "--threads" }.freeze

    # Options of the handler that become a flag without a value.
    SWITCHES = { early_hints: "--early-hints", Silent: "--quiet" }.freeze

    # Replaces the process, so unlike other handlers it yields no server object.
    def run(_app, **options)
      Binary.exec(*Handler.arguments(options))
    end

    def valid_options
      {
        "Host=HOST" => "Host to listen on, or the path of a Unix socket (default: from firebrick.toml)",
        "Port=PORT" => "Port to listen on (default: 9292)",
        "Threads=MIN:MAX" => "Threads per worker"
      }
    end

    module_function

    # Options that the user has not typed are defaults: the configuration file takes precedence over them.
    def arguments(options)
      typed = options[:user_supplied_options]
      options = options.slice(*typed, :config) if typed
      values = FLAGS.filter_map { |key, flag| [flag, options[key].to_s] if options[key] }.flatten
      switches = SWITCHES.filter_map { |key, flag| flag if options[key] }
      [*values, *listen(options[:Host]), *switches, *rackup_file(options[:config])]
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

    def rackup_file(path)
      path if path && File.file?(path)
    end
  end
end
