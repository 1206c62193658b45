# frozen_string_literal: true

module Firebrick
  class Template
    # Prevents Active Record from writing to databases while the template sends requests to the app: queries that write
    # raise ActiveRecord::ReadOnlyError, whatever role or shard the app chooses.
    #
    # In the connections and not by `while_preventing_writes`, which ends where the app itself switches roles. It holds
    # for all threads: in a template nothing else is served.
    module WriteGuard
      # Part of all connections since Rails 6.0: they ask this before each query that writes.
      module Connections
        def preventing_writes?
          WriteGuard.on? || super
        end
      end

      class << self
        # Returns whether Active Record is loaded, and can be kept from writing.
        def available?
          return false unless defined?(::ActiveRecord::Base) && ::ActiveRecord.respond_to?(:version)

          ::ActiveRecord::ConnectionAdapters::AbstractAdapter.method_defined?(:preventing_writes?)
        end

        def on?
          @on
        end

        # Runs the block; meanwhile nothing is written.
        def hold
          adapter = ::ActiveRecord::ConnectionAdapters::AbstractAdapter if available?
          adapter.prepend(Connections) if adapter && !adapter.include?(Connections)
          @on = true
          yield
        ensure
          @on = false
        end

        # Returns whether this error says that a write was prevented.
        def prevented?(error)
          while error
            return true if defined?(::ActiveRecord::ReadOnlyError) && error.is_a?(::ActiveRecord::ReadOnlyError)

            error = error.cause
          end
          false
        end
      end
    end
  end
end
