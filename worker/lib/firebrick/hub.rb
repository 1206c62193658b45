# frozen_string_literal: true

require "firebrick/hub/any_cable_gem"
require "firebrick/hub/call"
require "firebrick/hub/prepended"
require "firebrick/hub/streams"

module Firebrick
  # The app's side of the hub of live pages (docs/live-pages.md): runs the app's connections and channels of Action
  # Cable for WebSockets that the front holds.
  #
  # Contract:
  # 1. The front sends a request to the app's mount path for each connection, subscription, action and end. It passes
  #    the app's middleware, so cookies, sessions and `env["warden"]` are there as in Action Cable.
  # 2. A variable of the env that no client can set marks such a request.
  # 3. Nothing stays in this process between two requests: identifiers and variables travel with them (State).
  module Hub
    # The variable of the env.
    MARK = "firebrick.hub"
    ADAPTER = "firebrick"

    extend Streams

    # Prepares Action Cable and Action View. Returns sentences about settings of the app that contradict the hub.
    def self.install
      install_helper
      return ["hub.path serves no WebSockets: the app has no Action Cable"] unless defined?(::ActionCable::Server::Base)

      ::ActionCable::Server::Base.prepend(PrependedServer)
      ::ActionCable::Connection::Base.prepend(PrependedConnection)
      ::ActionCable::Channel::Base.prepend(PrependedChannel)
      ::ActionCable::Channel::Base.include(Presence)
      adapter = ::ActionCable.server.config.cable.to_h.with_indifferent_access[:adapter]
      return [] if adapter == ADAPTER

      ["live pages get no broadcasts: config/cable.yml names the adapter #{adapter.inspect} instead of #{ADAPTER}"]
    end

    # Adds the methods for views.
    def self.install_helper
      return unless defined?(::ActiveSupport) && ::ActiveSupport.respond_to?(:on_load)

      require "firebrick/hub/helper"
      ::ActiveSupport.on_load(:action_view) { include Helper }
    end
  end
end
