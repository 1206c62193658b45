# frozen_string_literal: true

require "firebrick/template/own_env"

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
        OwnEnv.of(@base, target, "SERVER_NAME" => "localhost", "SERVER_PORT" => "80", "HTTP_HOST" => "localhost",
                                 "HTTP_USER_AGENT" => "Firebrick warm-up")
      end
    end
  end
end
