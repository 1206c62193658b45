# frozen_string_literal: true

module Firebrick
  module StatementTimeout
    # Modules for the adapters of Active Record: before a statement, the limit of the connection is set.
    module Adapters
      # Follows the statements of all adapters.
      def self.follow(abstract)
        name = :with_raw_connection
        has_raw = abstract.private_method_defined?(name) || abstract.method_defined?(name)
        abstract.prepend(has_raw ? RawConnection : Log)
      end

      # In the abstract adapter of Active Record 7.1 and newer, which connects where a connection is needed.
      module RawConnection
        private

        def with_raw_connection(*given, **options)
          StatementTimeout.watch(self.class)
          super(*given, **options) do |raw|
            firebrick_limit(raw)
            yield raw
          end
        end
      end

      # In that of older versions, which have connected before.
      module Log
        private

        def log(*given, **options)
          StatementTimeout.watch(self.class)
          super(*given, **options) do |*yielded|
            firebrick_limit(@raw_connection || @connection)
            yield(*yielded)
          end
        end
      end

      # In the adapter of a database.
      module Database
        def exec_rollback_to_savepoint(*)
          super
        ensure
          @firebrick_limit&.rolled_back
        end

        private

        # Reconnects and resets end here: the session is a new one.
        def configure_connection(*)
          @firebrick_configures = true
          super
        ensure
          @firebrick_configures = false
          @firebrick_limit = nil
        end

        def firebrick_limit(raw)
          # Before its first use, a connection is being set up.
          return if @firebrick_configures || !in_use? || raw.nil?

          StatementTimeout.contain { firebrick_limit_of(raw)&.follow(StatementTimeout.current) }
        end

        def firebrick_limit_of(raw)
          return @firebrick_limit if @firebrick_limit&.of?(raw)

          @firebrick_limit = StatementTimeout.limit_of(raw, self)
        end
      end
    end
  end
end
