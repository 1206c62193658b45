# frozen_string_literal: true

require "firebrick/statement_timeout/session"

module Firebrick
  module StatementTimeout
    # The limit of a connection to PostgreSQL: `statement_timeout`.
    class Postgresql < Session
      # PQtransactionStatus: no transaction, and one that has not failed. During others nothing can be set.
      IDLE = 0
      OPEN = 2

      OWN = "SELECT setting FROM pg_settings WHERE name = 'statement_timeout'"
      # Sets the smaller one of the limit that the transaction has, and this one, until its end.
      LOCAL = "SELECT set_config('statement_timeout', (CASE WHEN setting::bigint BETWEEN 1 AND %<ms>d THEN setting " \
              "ELSE '%<ms>d' END), true) FROM pg_settings WHERE name = 'statement_timeout'"

      def initialize(raw, _adapter, only_local)
        super(raw)
        @only_local = only_local
        @local = nil
      end

      # Called before a statement.
      def follow(deadline)
        return if @raw.respond_to?(:pipeline_status) && !@raw.pipeline_status.zero?

        case @raw.transaction_status
        when IDLE
          @local = nil
          follow_session(deadline) unless @only_local
        when OPEN then follow_transaction(deadline)
        end
      end

      def rolled_back
        @local = nil
      end

      private

      def follow_transaction(deadline)
        left = deadline&.left or return
        now = @local || @now
        return if now&.between?(1, left)

        ms = aim(left)
        @raw.exec(format(LOCAL, ms: ms))
        @local = ms
      end

      def read
        Integer(@raw.exec(OWN).getvalue(0, 0))
      end

      def write(milliseconds)
        @raw.exec("SET statement_timeout = #{milliseconds}")
      end
    end
  end
end
