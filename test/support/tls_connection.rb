# frozen_string_literal: true

# A raw client connection over TLS: a Connection after its own handshake.

require "openssl"
require "support/connection"

class TlsConnection < Connection
  attr_reader :tcp

  # +name+ is the name to request (SNI), nil for none. +context+ changes the OpenSSL::SSL::SSLContext before the handshake;
  # +session+ is one to resume.
  def initialize(address, name: nil, session: nil, context: nil, **options)
    @name = name
    @session = session
    @context = OpenSSL::SSL::SSLContext.new
    @context.verify_mode = OpenSSL::SSL::VERIFY_NONE
    @context.session_cache_mode = OpenSSL::SSL::SSLContext::SESSION_CACHE_CLIENT
    @context.session_new_cb = ->((_, ticket)) { tickets << ticket }
    context&.call(@context)
    super(address, **options)
  end

  # The sessions that the server has offered for resumption.
  def tickets
    @tickets ||= []
  end

  # The subject's common name of the server's certificate.
  def served
    socket.peer_cert.subject.to_a.assoc("CN")[1]
  end

  def close
    super
    tcp.close unless tcp.closed?
  rescue SystemCallError, OpenSSL::SSL::SSLError
    tcp.close
  end

  private

  def open_socket(address, receive_buffer)
    @tcp = super
    ssl = OpenSSL::SSL::SSLSocket.new(@tcp, @context)
    ssl.hostname = @name if @name
    ssl.session = @session if @session
    ssl.connect
  end

  def fill(timeout)
    return unless timeout.positive? && (socket.pending.positive? || tcp.wait_readable(timeout))

    chunk = socket.read_nonblock(262_144, exception: false)
    case chunk
    when String then buffered << chunk
    when nil then @ended = true
    end
  rescue Errno::ECONNRESET, Errno::EPIPE, OpenSSL::SSL::SSLError
    @ended = @reset = true
  end
end
