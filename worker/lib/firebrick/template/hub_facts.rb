# frozen_string_literal: true

require "firebrick/wire"

module Firebrick
  class Template
    # Prepares an app for the hub of live pages.
    module HubFacts
      # Returns facts for the message `booted`: settings of the app that contradict the hub.
      # path:: of the socket on which the app publishes; nil without a hub
      def self.facts(path)
        return [] unless path

        ENV["FIREBRICK_HUB"] = path
        require "firebrick/hub"
        Hub.install.map { |note| [Wire::Booted::NOTE, note] }
      end
    end
  end
end
