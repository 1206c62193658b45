# frozen_string_literal: true

require "firebrick/hub/streams"
require "firebrick/hub/timers"

module Firebrick
  module Hub
    # Answers the front's calls instead of opening a WebSocket.
    module PrependedServer
      def call(env)
        env.key?(MARK) ? Call.new(self, env).response : super
      end
    end

    # A connection without a socket: what it transmits goes into the answer.
    module PrependedConnection
      # The answer of the call, and the client's session, as its welcome names it; nil for a connection with a socket
      # of its own.
      attr_reader :firebrick_answer, :firebrick_session

      # Lets the effects of a call go into its answer.
      def firebrick_call(order, answer)
        @firebrick_session = order["session"]
        @firebrick_answer = answer
      end

      def transmit(message)
        return super unless firebrick_answer

        firebrick_answer.transmit(encode(message))
      end

      def close(reason: nil, reconnect: true)
        return super unless firebrick_answer

        transmit(type: ::ActionCable::INTERNAL[:message_types][:disconnect], reason: reason, reconnect: reconnect)
        firebrick_answer.close
      end
    end

    # The members of a channel's streams, who are here (docs/live-pages.md).
    #
    # Contract: the front carries the calls out when the action has ended, in their order. A refusal
    # is a `presence` message of the type `error` to the client.
    module Presence
      # Makes the client a member of a stream, which it follows from now on. By default it is the first one that has
      # begun in this action, and else the channel's first. A channel can say the defaults of all its actions by
      # `user_presence_id` and `user_presence_info`.
      # info:: can be written as JSON
      def join_presence(stream = nil, id: nil, info: nil)
        id = default_presence_id if id.nil?
        raise ArgumentError, "#{self.class.name}: join_presence needs an id, or a method user_presence_id" if id.blank?

        info = respond_to?(:user_presence_info, true) ? user_presence_info : {} if info.nil?
        stream &&= Hub.stream_name(stream)
        presence_answer.stream(stream) if stream
        presence_answer.join(stream, id.to_s, info)
      end

      # Ends the membership of the client; with an id only if it is that of the member.
      def leave_presence(id = nil, stream: nil)
        presence_answer.leave(stream && Hub.stream_name(stream), id&.to_s)
      end

      private

      # Without a method, it is that of the connection.
      def default_presence_id
        respond_to?(:user_presence_id, true) ? user_presence_id : connection.connection_identifier
      end

      def presence_answer
        firebrick_answer or
          raise Refused, "#{self.class.name}: presence needs Firebrick's hub, hub.path in firebrick.toml"
      end
    end

    # A channel cannot do without a WebSocket of the app's own, so the client is about to get one.
    class NeedsSocket < StandardError
    end

    # A channel whose streams are followed by the front.
    module PrependedChannel
      # whisper:: the client may send messages to the others of this stream without the app, as the only one of its
      #           channel; a WebSocket of the app's own has no whispers
      def stream_from(broadcasting, callback = nil, coder: nil, whisper: false, &block)
        answer = firebrick_answer or return super(broadcasting, callback, coder: coder, &block)
        unless callback.nil? && block.nil? && [nil, ::ActiveSupport::JSON].include?(coder)
          why = "#{self.class.name} streams from #{broadcasting} with a block, callback or coder, which runs in Ruby"
          answer.need_socket(why)
          raise NeedsSocket, why
        end

        answer.stream(String(broadcasting))
        answer.add(whispers_to: String(broadcasting)) if whisper
      end

      def stream_for(model, callback = nil, coder: nil, whisper: false, &block)
        stream_from(broadcasting_for(model), callback, coder: coder, whisper: whisper, &block)
      end

      def stop_stream_from(broadcasting)
        answer = firebrick_answer or return super

        answer.stop(String(broadcasting))
      end

      def stop_all_streams
        answer = firebrick_answer or return super

        answer.stop_all
      end

      private

      def firebrick_answer
        connection.firebrick_answer if connection.respond_to?(:firebrick_answer)
      end

      # The front calls when the time has come.
      def start_periodic_timers
        answer = firebrick_answer or return super

        intervals = Timers.intervals(self)
        answer.add(timers: intervals) unless intervals.empty?
      end
    end
  end
end
