# frozen_string_literal: true

require "firebrick/pure/names"

module Firebrick
  module Pure
    # The Rack env of a request.
    class Env
      TRANSFER_ENCODING = NAMES.index("transfer-encoding") + 1
      COOKIE = NAMES.index("cookie") + 1
      CONTENT_LENGTH = NAMES.index("content-length") + 1
      VERSIONS = { 10 => "HTTP/1.0", 11 => "HTTP/1.1", 20 => "HTTP/2", 30 => "HTTP/3" }.freeze

      # base:: what all envs have in common
      # rack3:: whether the app's Rack is 3 or later
      def initialize(base, rack3)
        @base = base
        @rack3 = rack3
      end

      # started_us:: when the request was taken up
      def build(request, started_us)
        env = @base.merge("rack.after_reply" => [], "rack.response_finished" => [])
        env["firebrick.queue_time"] = [started_us - request.asked_us, 0].max / 1e6
        put_target(env, request)
        put_peer(env, request)
        put_version(env, request)
        request.fields.each { |field| put_field(env, field) }
        put_body(env, request)
        env
      end

      private

      def put_target(env, request)
        path = request.path.empty? ? "/" : request.path
        env["REQUEST_METHOD"] = request.verb
        env["REQUEST_PATH"] = path
        # `OPTIONS *`: in Rack 3 the path is "*"; in Rack 2 it is empty.
        env["PATH_INFO"] = path == "*" && !@rack3 ? "" : path
        env["REQUEST_URI"] = request.target
        env["QUERY_STRING"] = request.query
      end

      def put_peer(env, request)
        env["REMOTE_ADDR"] = request.remote_addr.empty? ? "127.0.0.1" : request.remote_addr
        env["REMOTE_PORT"] = request.remote_port.to_s unless request.remote_port.zero?
        env["SERVER_NAME"] = request.server_name
        env["SERVER_PORT"] = request.server_port
        return unless request.https?

        env["rack.url_scheme"] = "https"
        env["HTTPS"] = "on"
      end

      def put_version(env, request)
        env["SERVER_PROTOCOL"] = env["HTTP_VERSION"] = VERSIONS.fetch(request.version)
        return if request.version < 20

        # It shares its connection with others, and has none to hand over.
        env["rack.hijack?"] = false
        env.delete("rack.hijack")
      end

      def put_field(env, field)
        key = key_of(field)
        return if key.nil?

        known = env[key] if field.repeated
        env[key] = if known
                     known + (field.code == COOKIE ? "; " : ", ") + field.value
                   else
                     field.value
                   end
        put_certificate(env) if key == "SSL_CLIENT_CERT"
      end

      # nil for a field that the app does not see.
      def key_of(field)
        # The front has decoded the body.
        return if field.code == TRANSFER_ENCODING
        return KEYS[field.code] unless field.code.zero?
        # Not a field of the client, but a variable.
        return field.name.byteslice(1..-1) if field.name.start_with?("=")

        "HTTP_#{field.name.upcase.tr('-', '_')}"
      end

      # The client's certificate as Puma's apps find it.
      def put_certificate(env)
        certificate = Firebrick::Exchange.peer_certificate(env["SSL_CLIENT_CERT"])
        env["puma.peercert"] = certificate if certificate
      end

      def put_body(env, request)
        return unless request.body

        env["rack.input"] = Firebrick::Exchange.input(request.body)
        env["CONTENT_LENGTH"] ||= request.body_length.to_s
      end
    end
  end
end
