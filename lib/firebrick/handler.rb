# frozen_string_literal: true

require "firebrick/binary"

module Firebrick
  # `rackup -s firebrick`, `rails server -u firebrick`: turns the options of Rack handlers into arguments of the
  # program, and becomes it. The program loads the app again, from its `config.ru`.
  module Handler
    # Option of the handler, and the flag whose value it is.
    FLAGS = { Port: "--port", environment: "--environment", Threads: "--threads" }.freeze

    # Option of the handler, and the flag that it is.
    SWITCHES = { early_hints: "--early-hints", Silent: "--quiet" }.freeze

    # Replaces the process, so the server object that other handlers yield does not come.
    def run(_app, **options)
      Binary.exec(*Handler.arguments(options))
    end

    def valid_options
      {
        "Host=HOST" => "Host to listen on, or the path of a Unix socket (default: as firebrick.toml says)",
        "Port=PORT" => "Port to listen on (default: 9292)",
        "Threads=MIN:MAX" => "Threads of a worker"
      }
    end

    module_function

    # What was not typed by the user is a default, and loses to the configuration file.
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
