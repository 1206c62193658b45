# frozen_string_literal: true

require "firebrick/log_tag"
require "firebrick/template/own_env"

module Firebrick
  class Template
    module Warm
      # A request of a client, without its secrets, that the template sends to the app itself. The app can tell by
      # `firebrick.warmup`, and by HTTP_FIREBRICK_WARMUP.
      class Request
        MARKS = { "HTTP_FIREBRICK_WARMUP" => "1", "firebrick.warmup" => true }.freeze

        # The app's name for what the request is for, or its method and path.
        attr_reader :route

        # text:: the lines of `warm` (docs/internals/processes.md)
        def initialize(text)
          @route, @scheme, @authority, @target, *@fields = text.b.split("\n")
          raise ArgumentError, "boot: warm has no target: #{text.inspect}" unless @target
        end

        def to_s
          "GET #{@target}"
        end

        # Calls the app and reads the body. Returns the status; nil if the body is a stream that takes the connection.
        #
        # Raises whatever the app raises, or lets its middleware catch.
        def call(app, base)
          env = env(base)
          status, _headers, body = LogTag.run("warm-up") { app.call(env) }
          error = env["action_dispatch.exception"] || env["sinatra.error"]
          raise error if error
          return unless body.respond_to?(:each)

          body.each(&:itself) unless body.respond_to?(:to_path)
          status.to_i
        ensure
          body.close if body.respond_to?(:close)
        end

        private

        def env(base)
          env = OwnEnv.of(base, @target, of_authority.merge(MARKS))
          @fields.each do |line|
            name, value = line.split(": ", 2)
            env["HTTP_#{name.upcase.tr('-', '_')}"] = value.to_s
          end
          env
        end

        def of_authority
          host, port = @authority.match(/\A(.*?)(?::(\d+))?\z/mn).captures
          { "HTTP_HOST" => @authority, "rack.url_scheme" => @scheme,
            "SERVER_NAME" => host.empty? ? "localhost" : host, "SERVER_PORT" => port || default_port }
        end

        def default_port
          @scheme == "https" ? "443" : "80"
        end
      end
    end
  end
end
