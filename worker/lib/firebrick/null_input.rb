# frozen_string_literal: true

require "stringio"

module Firebrick
  # The `rack.input` of requests without a body: an empty StringIO that has no state, so all requests share one.
  #
  # Contract: methods that would change a StringIO do nothing here, or raise as on one that is open for reading.
  class NullInput < StringIO
    def initialize
      super(String.new(encoding: Encoding::BINARY).freeze)
    end

    # Returns a new String each time, because the app may write into it.
    def string
      String.new(encoding: Encoding::BINARY)
    end

    def read(length = nil, buffer = nil)
      buffer&.clear
      return if length&.positive?

      buffer || string
    end

    def each(*)
      block_given? ? self : to_enum(:each)
    end
    alias each_line each

    def gets(*, **)
      nil
    end
    alias getc gets
    alias getbyte gets
    alias close gets
    alias close_read gets
    alias close_write gets
    alias ungetc gets
    alias ungetbyte gets

    def rewind(*)
      0
    end
    alias pos rewind
    alias tell rewind
    alias seek rewind
    alias size rewind
    alias length rewind
    alias lineno rewind

    def pos=(position); end
    alias lineno= pos=
    alias sync= pos=

    def eof?
      true
    end
    alias eof eof?
    alias sync eof?

    def closed?
      false
    end
    alias closed_read? closed?

    def closed_write?
      true
    end

    def external_encoding
      Encoding::BINARY
    end

    def set_encoding(*)
      self
    end
    alias binmode set_encoding
    alias set_encoding_by_bom set_encoding

    def write(*)
      raise IOError, "not opened for writing"
    end
    alias write_nonblock write
    alias syswrite write
    alias << write
    alias print write
    alias puts write
    alias printf write
    alias putc write
    alias truncate write
    alias string= write
    alias reopen write

    # Returns an ordinary StringIO.
    def dup
      StringIO.new(string)
    end
    alias clone dup
  end
end
