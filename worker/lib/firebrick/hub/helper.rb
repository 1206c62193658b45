# frozen_string_literal: true

module Firebrick
  module Hub
    # Methods for views of Rails.
    module Helper
      # Returns an element by which Turbo listens to streams by Server-Sent Events, from now on, or from a position that
      # the controller has taken before it has read the contents. Each argument is a stream; an array is one of
      # several parts.
      #
      #   <%= firebrick_stream_source @room, [current_user, :notices], position: @position %>
      def firebrick_stream_source(*streams, position: nil, refresh: true, path: nil, **attributes)
        options = { position: position, refresh: refresh, path: path }.compact
        content_tag("turbo-stream-source", "", src: Hub.events_path(*streams, **options), **attributes)
      end

      # Returns elements of the head by which Rails' JavaScript and AnyCable's connect with a token, so the app is not
      # called for it; nil if all identifiers are nil.
      #
      #   <%= firebrick_cable_meta_tags current_user: current_user %>
      def firebrick_cable_meta_tags(expires_in: 3600, param: "jid", path: Hub.mount_path, **identifiers)
        # Without a user the app decides in `connect`.
        return if identifiers.compact.empty?

        token = Hub.connection_token(expires_in: expires_in, **identifiers)
        contents = { "action-cable-url" => "#{path}?#{param}=#{token}", "cable-token" => token,
                     "cable-token-param" => param }
        safe_join(contents.map { |name, content| tag.meta(name: name, content: content) }, "\n")
      end
    end
  end
end
