# frozen_string_literal: true

require "firebrick/pure/names"

module Firebrick
  module Pure
    # Builds the Rack env of a request.
    class Env
      TRANSFER_ENCODING = Wire::NAMES.index("transfer-encoding") + 1
      COOKIE = Wire::NAMES.index("cookie") + 1
      CONTENT_LENGTH = Wire::NAMES.index("content-length") + 1
      VERSIONS = { 10 => "HTTP/1.0", 11 => "HTTP/1.1", 20 => "HTTP/2", 30 => "HTTP/3" }.freeze

      # base:: the variables that all envs have in common
      # rack3:: whether the app's Rack is 3 or later
      def initialize(base, rack3)
        @base = base
        @rack3 = rack3
      end

      # started_us:: when the request was taken up
      def build(request, started_us)
        env = @base.dup
        env["rack.after_reply"] = []
        env["rack.response_finished"] = []
        waited_us = started_us - request.asked_us
        env["firebrick.queue_time"] = waited_us / 1e6 if waited_us.positive?
        put_target(env, request)
        put_peer(env, request)
        put_version(env, request)
        request.each_field { |code, name, value| put_field(env, code, name, value) }
        env["rack.protocol"] = Firebrick::Protocols.offered(env["HTTP_UPGRADE"]) if request.switch?
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
        # An Extended CONNECT has a stream of its own.
        return if request.version < 20 || request.switch?

        # The request shares its connection with others, so it cannot be handed over.
        env["rack.hijack?"] = false
        env.delete("rack.hijack")
      end

      def put_field(env, code, name, value)
        key = key_of(code & 0x7f, name)
        return if key.nil?

        known = env[key] if code >= Request::REPEATED
        value = known + (code & 0x7f == COOKIE ? "; " : ", ") + value if known
        env[key] = value
        put_certificate(env) if key == "SSL_CLIENT_CERT"
      end

      # Returns the env key; nil for a field that the app does not see.
      def key_of(code, name)
        # The front has already decoded the body.
        return if code == TRANSFER_ENCODING
        return KEYS[code] unless code.zero?
        # A variable of the front, not a field of the client.
        return name.byteslice(1..-1) if name.start_with?("=")

        "HTTP_#{name.upcase.tr('-', '_')}"
      end

      # Adds the client's certificate under the key that Puma's apps use.
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
