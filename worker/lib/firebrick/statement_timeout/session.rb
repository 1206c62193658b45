# frozen_string_literal: true

module Firebrick
  module StatementTimeout
    # The limit of the session of a connection, in milliseconds; 0: none. Subclasses know how it is read and set.
    class Session
      def initialize(raw)
        @raw = raw
        # The limit of the connection itself; nil until it has been read.
        @own = nil
        # The limit in force; nil while it is unknown.
        @now = nil
      end

      # Returns whether this is the limit of this connection.
      def of?(raw)
        @raw.equal?(raw)
      end

      # A rollback to a savepoint has restored settings.
      def rolled_back; end

      private

      # Sets the limit of the session for the rest of a request; without one, that of the connection.
      def follow_session(deadline)
        return if deadline.nil? && @own.nil?

        @now = @own = read if @own.nil?
        wanted = wanted(deadline&.left)
        return if wanted == @now

        # It may be interrupted.
        @now = nil
        write(wanted)
        @now = wanted
      end

      # Returns the limit that the session should have.
      def wanted(left)
        return @own if left.nil? || (@own.positive? && @own <= left)
        return @now if @now&.between?([left * LEAST, 1].max, left)

        aim(left)
      end

      def aim(left)
        [(left * AIM).floor, 1].max
      end
    end
  end
end
