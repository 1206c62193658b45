# frozen_string_literal: true

require "openssl"
require_relative "loads"

module Bench
  module Loads
    # Encrypted connections that stay open after one response each, over HTTP/1.1.
    class IdleTls < Idle
      def to_s = "#{@connections} connections with TLS, one request each, then idle"

      private

      def connect(uri)
        socket = OpenSSL::SSL::SSLSocket.new(super, context)
        socket.sync_close = true
        socket.connect
      end

      def context
        @context ||= OpenSSL::SSL::SSLContext.new.tap { |context| context.alpn_protocols = [protocol] }
      end

      def protocol = "http/1.1"
    end

    # The same over HTTP/2 (RFC 9113).
    class IdleHttp2 < IdleTls
      PREFACE = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".b
      HEADERS = 1
      SETTINGS = 4
      ACKNOWLEDGED = END_STREAM = 1
      END_HEADERS = 4

      def to_s = "#{@connections} connections with HTTP/2, one request each, then idle"

      private

      def protocol = "h2"

      def opened(uri)
        socket = connect(uri)
        socket.write(PREFACE + frame(SETTINGS, 0, 0, "") + frame(HEADERS, END_STREAM | END_HEADERS, 1, fields(uri)))
        loop do
          length, kind, flags, stream = head(socket)
          socket.read(length)
          socket.write(frame(SETTINGS, ACKNOWLEDGED, 0, "")) if kind == SETTINGS && flags.zero?
          return socket if stream == 1 && flags.anybits?(END_STREAM) && kind <= HEADERS
        end
      end

      # Returns length, kind, flags and stream of the next frame.
      def head(socket)
        bytes = socket.read(9) or raise EOFError, "the connection ended before the response"
        high, low, *rest = bytes.unpack("CnCCN")
        [(high << 16) | low, *rest]
      end

      def frame(kind, flags, stream, payload)
        [payload.bytesize >> 16, payload.bytesize & 0xffff, kind, flags, stream].pack("CnCCN") << payload
      end

      # GET, https; path and authority as literals without indexing (RFC 7541, sections 6.1 and 6.2.2).
      def fields(uri)
        texts = { 4 => uri.path, 1 => "#{uri.host}:#{uri.port}" }.map { |index, text| [index, text.bytesize].pack("CC") << text.b }
        "\x82\x87".b << texts.join
      end
    end
  end
end
