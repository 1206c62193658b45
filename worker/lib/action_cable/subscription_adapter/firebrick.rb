# frozen_string_literal: true

require "firebrick/hub/listener"
require "firebrick/hub/publisher"

module ActionCable
  module SubscriptionAdapter
    # `adapter: firebrick` in config/cable.yml: broadcasts go to the front, which holds the clients. WebSockets that a
    # process of the app holds itself get their messages from there. `socket` is the path of the front's Unix socket,
    # if it is not the default one (docs/live-pages.md).
    class Firebrick < Base
      def initialize(*)
        super
        @publisher = ::Firebrick::Hub::Publisher.new(path)
        @listener = ::Firebrick::Hub::Listener.new(path, logger) { |channel, payload| deliver(channel, payload) }
        @subscribers = Hash.new { |all, channel| all[channel] = [] }
        @lock = Mutex.new
        @pid = Process.pid
      end

      def broadcast(channel, payload)
        @publisher.publish(channel, payload)
      end

      def subscribe(channel, callback, success = nil)
        channel = String(channel)
        @lock.synchronize do
          # The subscribers of the process that has forked this one are not here.
          @subscribers.clear unless @pid == Process.pid
          @pid = Process.pid
          @subscribers[channel] << callback
        end
        @listener.add(channel) { success&.call }
      end

      def unsubscribe(channel, callback)
        channel = String(channel)
        @lock.synchronize do
          @subscribers[channel].delete(callback)
          next unless @subscribers[channel].empty?

          @subscribers.delete(channel)
          @listener.remove(channel)
        end
      end

      def shutdown
        @publisher.close
        @listener.close
      end

      private

      def deliver(channel, payload)
        callbacks = @lock.synchronize { @subscribers.key?(channel) ? @subscribers[channel].dup : [] }
        # Not in a pool of threads, which would change the order. The app's blocks do not run here.
        callbacks.each { |callback| callback.call(payload) }
      end

      def path
        ::Firebrick::Hub::Publisher.path(@server.config.cable.to_h.with_indifferent_access[:socket])
      end
    end
  end
end
