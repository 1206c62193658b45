# frozen_string_literal: true

module Firebrick
  class Template
    # Sends requests to the app before workers are forked, so that the code that they load and compile is shared.
    class Warmup
      def initialize(app, base)
        @app = app
        @base = base
      end

      def run(targets)
        targets.each { |target| request(target) }
      end

      private

      def request(target)
        env = env_for(target)
        status, _headers, body = @app.call(env)
        Report.log("firebrick: template: warm-up of #{target} returned #{status}") if status.to_i >= 500
        body.each(&:itself) if body.respond_to?(:each)
      rescue Exception => e # rubocop:disable Lint/RescueException
        Report.log("firebrick: template: warm-up: #{Report.text(e, env)}")
      ensure
        body.close if body.respond_to?(:close)
      end

      def env_for(target)
        path, query = target.split("?", 2)
        @base.merge(
          "REQUEST_METHOD" => "GET", "PATH_INFO" => path, "REQUEST_PATH" => path, "REQUEST_URI" => target,
          "QUERY_STRING" => query.to_s, "SERVER_NAME" => "localhost", "SERVER_PORT" => "80",
          "HTTP_HOST" => "localhost", "REMOTE_ADDR" => "127.0.0.1", "HTTP_USER_AGENT" => "Firebrick warm-up",
          "rack.hijack?" => false, "rack.after_reply" => [], "rack.response_finished" => []
        ).tap { |env| %w[rack.hijack rack.early_hints].each { |key| env.delete(key) } }
      end
    end
  end
end
