# frozen_string_literal: true

module Firebrick
  # Marks lines in the log of Rails that come from requests of no client.
  module LogTag
    class << self
      # Runs the block; lines of a logger that has tags get this one.
      def run(tag)
        logger = ::Rails.logger if defined?(::Rails) && ::Rails.respond_to?(:logger)
        return yield unless logger.respond_to?(:push_tags) && logger.respond_to?(:pop_tags)

        logger.push_tags(tag)
        begin
          yield
        ensure
          logger.pop_tags
        end
      end
    end
  end
end
