# frozen_string_literal: true

require "firebrick/wire"

module Firebrick
  class Template
    # The pool of connections to the database that Active Record is configured with.
    module ConnectionPool
      class << self
        # @return [Integer, nil] its size; nil without Active Record, without a database, or without a limit
        def size
          found = config or return
          # The name since Rails 8.1. nil means that the pool has no limit.
          found.respond_to?(:max_connections) ? found.max_connections : found.pool
        end

        # @return [ActiveRecord::DatabaseConfigurations::DatabaseConfig, nil]
        def config
          return unless defined?(::ActiveRecord) && ::ActiveRecord.const_defined?(:Base, false)
          return if ::ActiveRecord.autoload?(:Base)

          ::ActiveRecord::Base.connection_db_config
        rescue StandardError
          nil # there is no database
        end

        # Returns facts for `booted`.
        def facts
          found = size
          found ? [[Wire::Booted::CONNECTIONS, found]] : []
        end
      end
    end
  end
end
