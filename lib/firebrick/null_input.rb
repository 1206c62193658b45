# frozen_string_literal: true

module Firebrick
  # The `rack.input` of requests without a body. It has no state, so all of them share one.
  class NullInput
    def read(length = nil, buffer = nil)
      buffer&.clear
      return if length&.positive?

      buffer || String.new(encoding: Encoding::BINARY)
    end

    def gets(*) = nil
    def getc = nil
    def getbyte = nil

    def each
      block_given? ? self : to_enum(:each)
    end
    alias each_line each

    def rewind = 0
    def pos = 0
    alias tell pos
    def seek(*) = 0
    def size = 0
    alias length size
    def eof? = true
    def binmode = self
    def sync = true
    def close = nil
    def closed? = false
    def external_encoding = Encoding::BINARY
    def set_encoding(*) = self
  end
end
