# frozen_string_literal: true

require "firebrick/wire"

module Firebrick
  class Template
    # Prepares an app for the hub of live pages.
    module HubFacts
      # Returns facts for the message `booted`: settings of the app that contradict the hub.
      # path:: of the socket on which the app publishes; nil without a hub
      # rpc:: path at which AnyCable's gem answers the hub; nil without it
      def self.facts(path:, rpc:)
        return [] unless path

        ENV["FIREBRICK_HUB"] = path
        require "firebrick/hub"
        (rpc ? Hub::AnyCableGem.notes(rpc) : Hub.install).map { |note| [Wire::Booted::NOTE, note] }
      end
    end
  end
end
