# frozen_string_literal: true

require "json"

module Firebrick
  module Hub
    # The answer to a call (`server/front/src/hub/call.rs`).
    class Answer
      HEADERS = { "content-type" => "application/json", "firebrick-hub" => "1" }.freeze

      def initialize
        @fields = { transmissions: [], streams: [], stopped: [], presence: [] }
      end

      def transmit(text)
        @fields[:transmissions] << text
      end

      def close
        @fields[:closed] = true
      end

      def stream(name)
        @fields[:streams] << name
      end

      # Streams that have begun in this call are left out instead.
      def stop(name)
        @fields[:stopped] << name unless @fields[:streams].delete(name)
      end

      def stop_all
        @fields[:streams].clear
        @fields[:stopped_all] = true
      end

      # Without a stream, it is the first that has begun in this call, and else the first of the channel.
      def join(stream, id, info)
        @fields[:presence] << { stream: stream || @fields[:streams].first, id: id, info: info }
      end

      # Without an id, the channel leaves as any member.
      def leave(stream, id)
        @fields[:presence] << { stream: stream, id: id }
      end

      # The app has to be the one that holds this client's WebSocket. `why` is for the log.
      def need_socket(why)
        @fields[:needs_socket] = why
      end

      def needs_socket?
        @fields.key?(:needs_socket)
      end

      # Adds fields: `connection`, `channel`, `remote`, `rejected`, `timers`, `whispers_to`. nil leaves one out.
      def add(fields)
        @fields.update(fields.compact)
      end

      def response
        [200, HEADERS.dup, [JSON.generate(@fields)]]
      end
    end
  end
end
