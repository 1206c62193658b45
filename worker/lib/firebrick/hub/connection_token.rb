# frozen_string_literal: true

require "firebrick/hub/records"
require "json"
require "openssl"

module Firebrick
  module Hub
    # Tokens (JWT, HS256) by which clients connect without a call to the app, in the form of AnyCable's: the claim `ext`
    # has the connection's identifiers as JSON (docs/live-pages.md).
    module ConnectionToken
      # Environment variables with a secret of tokens alone, which the server has, too.
      SECRETS = %w[FIREBRICK_JWT_SECRET ANYCABLE_JWT_SECRET].freeze
      HEADER = { alg: "HS256", typ: "JWT" }.freeze

      module_function

      # Returns a token. Records stand for their Global IDs.
      # expires_in:: seconds
      def generate(identifiers, expires_in)
        now = Time.now.to_i
        claims = { ext: ext_of(identifiers), exp: now + Integer(expires_in), iat: now }
        text = [HEADER, claims].map { |part| encode(JSON.generate(part)) }.join(".")
        "#{text}.#{encode(sign(text))}"
      end

      # Returns the identifiers of a token, by name; nil if it is not valid any more.
      def identifiers(token)
        text, _, signature = token.to_s.rpartition(".")
        return unless signed?(text, signature)

        header, claims = text.split(".").map { |part| JSON.parse(part.tr("-_", "+/").unpack1("m")) }
        located(claims["ext"]) if usual?(header) && in_force?(claims)
      rescue JSON::ParserError
        nil
      end

      # Gives a connection of Action Cable the identifiers of a token, as far as it has them.
      def identify(connection, ext)
        located(ext).each do |name, value|
          connection.public_send("#{name}=", value) if connection.identifiers.include?(name)
        end
      end

      # Returns identifiers by name, with the records for which texts stand; nil if they are no object. A record that is
      # gone is left out.
      # ext:: a JSON text, or an object
      def located(ext)
        ext = JSON.parse(ext) if ext.is_a?(String)
        ext.to_h { |name, value| [name.to_sym, value_of(value)] }.compact if ext.is_a?(Hash)
      end

      # Returns the claim of identifiers; a token without any would let a visitor in without `connect`.
      def ext_of(identifiers)
        known = identifiers.compact
        raise ArgumentError, "a token needs an identifier that is not nil" if known.empty?

        JSON.generate(known.transform_values { |one| one.respond_to?(:to_gid_param) ? one.to_gid_param : one })
      end

      # Critical extensions (RFC 7515, section 4.1.11) are unknown here.
      def usual?(header)
        header["alg"] == HEADER[:alg] && !header.key?("crit")
      end

      # Digests are compared, so the time does not tell how much of the signature is right.
      def signed?(text, signature)
        [encode(sign(text)), signature].map { |one| OpenSSL::Digest.digest("SHA256", one) }.uniq.one?
      end

      def in_force?(claims)
        now = Time.now.to_f
        claims.fetch("nbf", 0) <= now && now < claims.fetch("exp", Float::INFINITY)
      end

      def value_of(value)
        id = value.is_a?(String) && defined?(::GlobalID) && ::GlobalID.parse(value)
        id ? Records.find(id) : value
      end

      def sign(text)
        OpenSSL::HMAC.digest("SHA256", secret, text)
      end

      def secret
        ENV.values_at(*SECRETS, Streams::SECRET).find { |one| one && !one.strip.empty? } || turbo_key ||
          raise(KeyError, "no secret to sign a token: set #{Streams::SECRET} for the server and its app")
      end

      def turbo_key
        ::Turbo.signed_stream_verifier_key if defined?(::Turbo) && ::Turbo.respond_to?(:signed_stream_verifier_key)
      end

      def encode(text)
        [text].pack("m0").tr("+/", "-_").delete("=")
      end
    end
  end
end
