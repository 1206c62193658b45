# frozen_string_literal: true

require "digest/sha1"
require "firebrick/errors"

module Firebrick
  # `rack.protocol` of Rack 3.1: the protocols that a client offers to switch to, and the one that the app has chosen.
  # The same for an upgrade of HTTP/1.1 and for an Extended CONNECT of HTTP/2 and HTTP/3, which is shown as an upgrade.
  module Protocols
    # Returns the protocols of an `Upgrade` field, in the client's order.
    def self.offered(upgrade)
      upgrade.to_s.split(",").map(&:strip).reject(&:empty?)
    end

    # Returns the response that switches to the protocol which `rack.protocol` of the headers names, and passes the
    # connection to the body. Returns nil for a status that accepts nothing: 101 and 2xx do.
    def self.switched(env, status, headers, body)
      Switch.new(env, headers, body).response if status == 101 || status.between?(200, 299)
    end

    # A response that accepts a protocol.
    class Switch
      # The constant of RFC 6455, section 1.3.
      WEBSOCKET = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
      # Fields that the switch replaces, or that a response without a body of its own does not have.
      REPLACED = %w[rack.protocol connection upgrade content-length transfer-encoding].freeze
      private_constant :WEBSOCKET, :REPLACED

      def initialize(env, headers, body)
        @env = env
        @headers = headers.to_h.transform_keys { |name| name.to_s.downcase }
        @body = body
      end

      # Returns status, headers and body.
      def response
        protocol = chosen
        fields = @headers.reject { |name, _| REPLACED.include?(name) }
        fields["rack.hijack"] ||= callable
        fields["sec-websocket-accept"] ||= accept(protocol)
        [101, fields.compact.merge("upgrade" => protocol, "connection" => "upgrade"), @body]
      end

      private

      # Returns the protocol as the client has written it.
      def chosen
        name = @headers["rack.protocol"].to_s
        offered = @env["rack.protocol"]
        raise BadResponse, "rack.protocol is #{name.inspect}, but the client offers no protocol" unless offered

        offered.find { |one| one.casecmp?(name) } ||
          raise(BadResponse, "rack.protocol is #{name.inspect}, which is none of the client's: #{offered.join(', ')}")
      end

      def callable
        return @body if @body.respond_to?(:call)

        raise BadResponse, "a response with rack.protocol needs a body that responds to call"
      end

      # Returns the answer to the client's key (RFC 6455, section 4.2.2).
      def accept(protocol)
        key = @env["HTTP_SEC_WEBSOCKET_KEY"]
        [Digest::SHA1.digest(key + WEBSOCKET)].pack("m0") if key && protocol.casecmp?("websocket")
      end
    end
  end
end
