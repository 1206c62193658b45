# frozen_string_literal: true

require "socket"

module Firebrick
  # The stream of a Rack 3 streaming body, or of `rack.hijack` in the headers.
  class StreamSocket < UNIXSocket
    # The Rack SPEC gives `close` no argument; libraries pass the reason.
    def close(*)
      super()
    end
  end

  # The stream of a Rack 3 streaming body whose request has a body: reads the body first, then what the client sends.
  class Stream
    def initialize(socket, input)
      @socket = socket
      @input = input
    end

    def read(length = nil, buffer = nil)
      return join(buffer) if length.nil?

      bytes = @input&.read(length)
      return replace(buffer, bytes) if bytes && !bytes.empty?

      @input = nil unless length.zero?
      @socket.read(length, *buffer)
    end

    def read_nonblock(length, buffer = nil, exception: true)
      bytes = @input&.read(length)
      return replace(buffer, bytes) if bytes && !bytes.empty?

      @input = nil unless length.zero?
      @socket.read_nonblock(length, buffer, exception: exception)
    end

    # As IO#readpartial: waits until there is something, raises EOFError at the end.
    def readpartial(length, buffer = nil)
      bytes = @input&.read(length)
      return replace(buffer, bytes) if bytes && !bytes.empty?

      @input = nil unless length.zero?
      @socket.readpartial(length, *buffer)
    end

    def gets(*arguments)
      @input&.gets(*arguments) || begin
        @input = nil
        @socket.gets(*arguments)
      end
    end

    def each
      while (line = gets)
        yield line
      end
    end

    def write(*parts)
      @socket.write(*parts)
    end

    def write_nonblock(*arguments)
      @socket.write_nonblock(*arguments)
    end

    def <<(part)
      @socket << part
      self
    end

    def flush
      @socket.flush
      self
    end

    def close(*)
      @socket.close
    end

    def close_read
      @input = nil
      @socket.close_read
    end

    def close_write
      @socket.close_write
    end

    def closed?
      @socket.closed?
    end

    def to_io
      @socket
    end

    private

    def join(buffer)
      bytes = "#{@input&.read}#{@socket.read}".b
      @input = nil
      replace(buffer, bytes)
    end

    def replace(buffer, bytes)
      buffer ? buffer.replace(bytes) : bytes
    end
  end
end
