# frozen_string_literal: true

require "anycable/broadcast_adapters/base"
require "firebrick/hub/publisher"

module AnyCable
  module BroadcastAdapters
    # `broadcast_adapter: firebrick` in config/anycable.yml: messages go to the server on this machine by its Unix
    # socket (docs/from-anycable.md).
    #
    # Contract: `broadcast` returns when all messages have their numbers, and raises if they have not.
    class Firebrick < Base
      # socket:: path of the Unix socket, if it is not the default one
      def initialize(socket: nil)
        super()
        @path = ::Firebrick::Hub::Publisher.path(socket)
        @publisher = ::Firebrick::Hub::Publisher.new(@path)
      end

      def raw_broadcast(payload)
        @publisher.broadcast(payload)
      end

      def announce!
        logger.info "Broadcasting to Firebrick on #{@path}"
      end
    end
  end
end
