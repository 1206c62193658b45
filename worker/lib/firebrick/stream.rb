# frozen_string_literal: true

require "forwardable"
require "firebrick/client_socket"
require "firebrick/errors"
require "firebrick/null_input"

module Firebrick
  # The stream of a Rack 3 streaming body, or of `rack.hijack` in the headers, on an upgraded connection.
  class UpgradedSocket < UNIXSocket
    include ClientSocket

    # The Rack SPEC gives `close` no argument, but libraries pass a reason.
    def close(*)
      super()
    end

    # Ends a stream that the app has left without closing it.
    def abort
      close
    end
  end

  # The same on a connection that has not been upgraded: nothing comes from the client, and the response is complete
  # when the app has closed the stream.
  #
  # Contract: a byte that the app does not read stays in the socket, and #close takes it out. If the socket ends in any
  # other way (an exception, the end of the process, the collector), the connection to the front is reset,
  # and the response is cut off (worker/native/src/body.rs). With copies (`dup`) the last close counts.
  class StreamSocket < UpgradedSocket
    ENDED = NullInput.new
    private_constant :ENDED

    # Methods that read from the stream: they behave as at its end.
    READING = %i[each each_byte each_char each_codepoint each_line eof eof? getbyte getc gets read read_nonblock
                 readbyte readchar readline readlines readpartial sysread].freeze

    READING.each do |name|
      define_method(name) do |*arguments, **options, &block|
        raise IOError, "closed stream" if closed?

        ENDED.public_send(name, *arguments, **options, &block)
      end
    end

    def recv(_length, _flags = 0, buffer = nil)
      ENDED.read(nil, buffer)
    end

    def recv_nonblock(_length, _flags = 0, buffer = nil, exception: true) # rubocop:disable Lint/UnusedMethodArgument
      ENDED.read(nil, buffer)
    end

    def close(*)
      take_mark if !closed? && (copies[0] -= 1).zero?
      super
    end

    def abort
      UpgradedSocket.instance_method(:close).bind(self).call
    end

    def initialize_copy(other)
      super
      @copies = other.copies
      @copies[0] += 1
    end

    protected

    # The number of copies that are not closed, in an Array that they share.
    def copies
      @copies ||= [1]
    end

    private

    def take_mark
      UNIXSocket.instance_method(:recv_nonblock).bind(self).call(1, exception: false)
    rescue SystemCallError
      # The front is gone, or has ended the response.
      nil
    end
  end

  # The stream of a Rack 3 streaming body whose request has a body: reads that body first, then the client's further
  # bytes.
  class Stream
    extend Forwardable

    def_delegators :@socket, :write, :write_nonblock, :syswrite, :print, :puts, :printf, :putc, :close, :close_write,
                   :closed?, :abort, :fileno, :sync, :sync=, :fsync, :setsockopt, :getsockopt, :peeraddr, :addr,
                   :remote_address, :local_address, :getpeername, :getsockname

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

    # As IO#readpartial: waits until there is something to read, raises EOFError at the end.
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

    def <<(part)
      @socket << part
      self
    end

    def flush
      @socket.flush
      self
    end

    def close_read
      @input = nil
      @socket.close_read
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
