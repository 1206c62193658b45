# frozen_string_literal: true

module Firebrick
  class PumaFile
    # The settings of a puma.rb about requests: their scheme, the client's address, the supported methods.
    class Requests
      class << self
        # Returns the app itself when there is nothing to do.
        def wrap(app, options)
          methods = options[:supported_http_methods] unless options[:supported_http_methods] == :any
          says = [options[:rack_url_scheme]&.to_s, address(options[:remote_address]), methods]
          says.any? ? new(app, *says) : app
        end

        private

        def address(said)
          said unless said == :socket || (said.is_a?(Hash) && !said[:header])
        end
      end

      def initialize(app, scheme, address, methods)
        @app = app
        @scheme = scheme
        @methods = methods
        case address
        when Hash then @header = "HTTP_#{address[:header].to_s.upcase.tr('-', '_')}"
        when :localhost then @address = "127.0.0.1"
        else @address = address&.to_s
        end
      end

      def call(env)
        return refused(env) if @methods && !@methods.include?(env["REQUEST_METHOD"])

        env["rack.url_scheme"] = @scheme if @scheme
        env["REMOTE_ADDR"] = address(env) || env["REMOTE_ADDR"]
        @app.call(env)
      end

      private

      def address(env)
        @header ? env.fetch(@header, "").split(/[\s,]+/).first : @address
      end

      def refused(env)
        [501, { "content-type" => "text/plain" }, ["#{env['REQUEST_METHOD']} method is not supported\n"]]
      end
    end
  end
end
