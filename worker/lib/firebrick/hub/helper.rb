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
    end
  end
end
