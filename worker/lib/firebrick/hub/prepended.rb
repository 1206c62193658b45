# frozen_string_literal: true

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
      # The answer of the call; nil for a connection with a socket of its own.
      attr_accessor :firebrick_answer

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

    # A channel whose streams are followed by the front.
    module PrependedChannel
      def stream_from(broadcasting, callback = nil, coder: nil, &block)
        answer = firebrick_answer or return super
        unless callback.nil? && block.nil? && [nil, ::ActiveSupport::JSON].include?(coder)
          raise ArgumentError, "#{self.class.name}: with Firebrick's hub, stream_from takes no block, callback or " \
                               "coder, because messages go to clients without Ruby; change them before the broadcast"
        end

        answer.stream(String(broadcasting))
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

      def start_periodic_timers
        return super unless firebrick_answer
        return if self.class.periodic_timers.empty?

        logger.warn "#{self.class.name}: with Firebrick's hub, `periodically` has no effect; broadcast from a job"
      end
    end
  end
end
