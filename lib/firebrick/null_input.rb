# frozen_string_literal: true

module Firebrick
  # The `rack.input` of requests without a body. It has no state, so all of them share one.
  class NullInput
    def read(length = nil, buffer = nil)
      buffer&.clear
      return if length&.positive?

      buffer || String.new(encoding: Encoding::BINARY)
    end

    def gets(*)
      nil
    end
    alias getc gets
    alias getbyte gets
    alias close gets

    def each
      block_given? ? self : to_enum(:each)
    end
    alias each_line each

    def rewind(*)
      0
    end
    alias pos rewind
    alias tell rewind
    alias seek rewind
    alias size rewind
    alias length rewind

    def eof?
      true
    end
    alias sync eof?

    def closed?
      false
    end

    def external_encoding
      Encoding::BINARY
    end

    def set_encoding(*)
      self
    end
    alias binmode set_encoding
  end
end
