# frozen_string_literal: true

module Firebrick
  module Hub
    # Records of the app that travel by their Global IDs.
    module Records
      # Returns the record; nil if it is gone.
      def self.find(gid)
        ::GlobalID::Locator.locate(gid)
      rescue StandardError => e
        raise unless defined?(::ActiveRecord::RecordNotFound) && e.is_a?(::ActiveRecord::RecordNotFound)

        nil
      end
    end
  end
end
