# frozen_string_literal: true

module Firebrick
  class Server
    # Converts options of Firebrick::Server to arguments of the front.
    class Arguments
      # The options that are not flags of the program, with their defaults.
      OWN = { host: nil, port: nil, bind: nil, config: nil, dir: nil, quiet: true, defaults: {} }.freeze

      # The working directory of the front.
      attr_reader :dir

      def initialize(**options)
        @own = OWN.merge(options.slice(*OWN.keys))
        @flags = options.reject { |name, _| OWN.key?(name) }
        @dir = File.expand_path(@own[:dir] || Dir.pwd)
        # A server embedded in another program needs no control socket for an operator.
        @flags = { control: "off", **@flags } unless @own[:config]
      end

      # The words after the program's name.
      def to_a
        ["front", "--attach", *scope, *weak, @dir, *listen, *@flags.flat_map { |name, value| flag(name, value) },
         *("--quiet" if @own[:quiet])]
      end

      private

      def scope
        case (config = @own[:config])
        when nil, false then ["--app-only", "--no-public", "--config", "-"]
        when true then []
        else ["--config", File.expand_path(config.to_s, @dir)]
        end
      end

      def weak
        { host: "127.0.0.1", **@own[:defaults] }.compact.flat_map { |key, value| ["--weak", "#{key}=#{value}"] }
      end

      def listen
        binds = Array(@own[:bind])
        return binds.flat_map { |bind| ["--bind", bind.to_s] } unless binds.empty?

        %i[host port].select { |key| @own[key] }.flat_map { |key| ["--#{key}", @own[key].to_s] }
      end

      def flag(name, value)
        flag = name.to_s.tr("_", "-")
        case value
        when nil then []
        when true then ["--#{flag}"]
        when false then ["--no-#{flag}"]
        else ["--#{flag}", Array(value).join(",")]
        end
      end
    end
  end
end
