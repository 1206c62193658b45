# frozen_string_literal: true

require "firebrick/hub/publisher"

module ActionCable
  module SubscriptionAdapter
    # `adapter: firebrick` in config/cable.yml: broadcasts go to the front, which holds the clients. `socket` is the
    # path of its Unix socket, if it is not the default one (docs/live-pages.md).
    class Firebrick < Base
      def initialize(*)
        super
        @publisher = ::Firebrick::Hub::Publisher.new(path)
      end

      def broadcast(channel, payload)
        @publisher.publish(channel, payload)
      end

      def subscribe(channel, *)
        logger.error "nothing can subscribe to #{channel} in Ruby: the adapter firebrick is for clients of the hub, " \
                     "which hub.path in firebrick.toml switches on"
        raise NotImplementedError, "the adapter firebrick has no subscribers in Ruby"
      end

      # Nothing is subscribed.
      def unsubscribe(*); end

      def shutdown
        @publisher.close
      end

      private

      def path
        ::Firebrick::Hub::Publisher.path(@server.config.cable.to_h.with_indifferent_access[:socket])
      end
    end
  end
end
