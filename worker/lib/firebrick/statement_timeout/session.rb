# frozen_string_literal: true

module Firebrick
  module StatementTimeout
    # The limit of the session of a connection, in milliseconds; 0: none. Subclasses know how it is read and set.
    class Session
      def initialize(raw)
        @raw = raw
        # The limit of the connection itself, and the one in force; nil until they have been read.
        @own = @now = nil
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
        return if deadline.nil? && @now.nil?

        @now = @own = read if @now.nil?
        wanted = wanted(deadline&.left)
        return if wanted == @now

        # If it fails, the limit is unknown.
        own = @own
        @own = @now = nil
        write(wanted)
        @own = own
        @now = wanted
      end

      # Returns the limit that the session should have.
      def wanted(left)
        return @own if left.nil? || (@own.positive? && @own <= left)
        return @now if @now.positive? && @now <= left && @now >= left * LEAST

        aim(left)
      end

      def aim(left)
        [(left * AIM).floor, 1].max
      end
    end
  end
end
