# frozen_string_literal: true

require "firebrick/hub/connection_token"
require "firebrick/hub/publisher"
require "json"
require "openssl"
require "uri"

module Firebrick
  # The app calls these methods whether it uses Action Cable or not (docs/live-pages.md).
  module Hub
    # Publishes, and gives pages the addresses of streams.
    #
    # A stream is named by a text, or by parts, as with `turbo_stream_from`: records stand for their Global IDs, and
    # an array joins its parts.
    module Streams
      # The environment variable with the secret that the server has, too.
      SECRET = "FIREBRICK_HUB_SECRET"
      DEFAULT_PATH = "/cable"
      SESSION = /\A[0-9a-f]{16}\z/.freeze

      # Sends a message, which can be written as JSON, to all listeners of a stream. Returns its epoch and offset.
      # except:: the session of a client that does not get it (`sid` of its welcome); others, and nil, exclude none
      def publish(stream, message, except: nil)
        except = nil unless SESSION.match?(except.to_s)
        publisher.publish(stream_name(stream), JSON.generate(message), except: except)
      end

      # Returns the session of the client for which the app's connection or channel runs; nil elsewhere.
      def session
        connection = defined?(::ActionCable::Server::Worker) && ::ActionCable::Server::Worker.connection
        connection.firebrick_session if connection.respond_to?(:firebrick_session)
      end

      # Returns the place at which these streams are now: the id from which `events_path` lets a page listen.
      def position(*streams)
        publisher.position(streams.map { |stream| stream_name(stream) })
      end

      # Returns the members of a stream, by id with their info.
      def presence(stream)
        publisher.presence(stream_name(stream))
      end

      # Returns a token by which a page may be this member of a stream, without a channel of the app.
      # info::       can be written as JSON
      # expires_in:: seconds in which one may join by it; by default always
      def presence_token(stream, id:, info: {}, expires_in: nil)
        member = { stream: stream_name(stream), id: id.to_s, info: info }
        member[:until] = Time.now.to_i + Integer(expires_in) if expires_in
        sign({ presence: member })
      end

      # Returns a token by which a client connects as this one, without a call to the app.
      # identifiers:: the connection's (`identified_by`), for example `current_user: user`
      # expires_in::  seconds in which a client may connect by it; one that is connected stays
      def connection_token(expires_in: 3600, **identifiers)
        ConnectionToken.generate(identifiers, expires_in)
      end

      # Returns the identifiers of such a token, by name; nil if it is not valid any more.
      def connection_identifiers(token)
        ConnectionToken.identifiers(token)
      end

      # Returns the address of these streams as Server-Sent Events.
      # position:: what the page has already; by default everything up to now
      # presence:: the token of the member that the page is in one of the streams
      # refresh::  whether Turbo loads the page again after a gap
      # path::     the mount path of Action Cable, or hub.path
      def events_path(*streams, position: nil, presence: nil, refresh: false, path: mount_path)
        position ||= self.position(*streams)
        query = streams.map { |stream| ["stream", signed_stream_name(stream)] } << ["last_event_id", position]
        query << ["presence", presence] if presence
        query << %w[refresh 1] if refresh
        "#{path.chomp('/')}/events?#{URI.encode_www_form(query)}"
      end

      # Returns the name with its signature, as Turbo signs it.
      def signed_stream_name(stream)
        sign(stream_name(stream))
      end

      # Returns the name of a stream.
      def stream_name(stream)
        return stream.map { |part| stream_name(part) }.join(":") if stream.is_a?(Array)
        return stream.to_gid_param if stream.respond_to?(:to_gid_param)

        stream.respond_to?(:to_param) ? stream.to_param : stream.to_s
      end

      # Returns the path at which clients connect.
      def mount_path
        (defined?(::ActionCable) && ::ActionCable.server.config.mount_path) || DEFAULT_PATH
      end

      private

      # Signs what can be written as JSON, as Turbo does.
      def sign(value)
        return ::Turbo.signed_stream_verifier.generate(value) if turbo?

        secret = ENV.fetch(SECRET) do
          raise KeyError, "no secret to sign the name of a stream: set #{SECRET} for the server and its app"
        end
        data = [JSON.generate(value)].pack("m0")
        "#{data}--#{OpenSSL::HMAC.hexdigest('SHA256', secret, data)}"
      end

      def turbo?
        defined?(::Turbo) && ::Turbo.respond_to?(:signed_stream_verifier)
      end

      # Copies of it in forked processes connect by themselves.
      def publisher
        @publisher ||= Publisher.new(Publisher.path)
      end
    end
  end
end
