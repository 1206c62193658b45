# frozen_string_literal: true

require "firebrick/statement_timeout/session"

module Firebrick
  module StatementTimeout
    # The limit of a connection to MySQL (`max_execution_time`, for SELECT) or MariaDB (`max_statement_time`). A
    # transaction has none of its own.
    class Mysql < Session
      def initialize(raw, adapter, only_local)
        super(raw)
        @is_mariadb = adapter.mariadb?
        @is_off = only_local
      end

      # Called before a statement.
      def follow(deadline)
        follow_session(deadline) unless @is_off
      rescue StandardError => e
        # The version has no such variable.
        @is_off = StatementTimeout.of_driver?(e)
        raise
      end

      private

      def read
        return Integer(value("SELECT @@SESSION.max_execution_time")) unless @is_mariadb

        # In seconds.
        (Float(value("SELECT @@SESSION.max_statement_time")) * 1000).round
      end

      def write(milliseconds)
        @raw.query("SET SESSION #{assignment(milliseconds)}")
      end

      def assignment(milliseconds)
        @is_mariadb ? "max_statement_time = #{milliseconds / 1000.0}" : "max_execution_time = #{milliseconds}"
      end

      def value(sql)
        row = @raw.query(sql).to_a.first
        row.is_a?(Hash) ? row.values.first : row.first
      end
    end
  end
end
