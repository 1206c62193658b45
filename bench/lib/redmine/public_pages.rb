# frozen_string_literal: true

require_relative "comparison"
require_relative "guests"

module Bench
  module Redmine
    # Visitors without a login: Puma with Redmine as it is, and Firebrick with examples/redmine, which keeps their pages for ten seconds.
    #
    # Each server gets the same clients for slices of the same length in turn, so its pages expire as often as under steady load.
    class PublicPages < Comparison
      SECONDS = 12

      def initialize(**options)
        super
        @pages = Guests::PAGES
      end

      private

      def start(peer)
        if peer.name == "firebrick"
          peer.instance.add_examples("public_pages.rb")
          FileUtils.cp(File.join(::Redmine::Instance::EXAMPLE, "firebrick.toml"), peer.instance.dir)
        end
        serve(peer)
        peer.visitors = Guests.new(peer.server.port, @clients)
      end

      def warm_up(peer, number) = peer.visitors.slice(3, number)

      def load(peer, number) = peer.visitors.slice(SECONDS, number)

      def close(_peer) = nil
    end
  end
end
