# frozen_string_literal: true

# A CA with moods: stands between a server and Pebble, passes requests on, and may answer some of them itself.

require "openssl"
require "socket"

class CaProxy
  # Pebble's paths, by what they are for.
  KINDS = { "/dir" => :directory, "/nonce-plz" => :nonce, "/sign-me-up" => :new_account, "/order-plz" => :new_order, "/my-order/" => :order,
            "/authZ/" => :authorization, "/chalZ/" => :challenge, "/finalize-order/" => :finalize, "/certZ/" => :certificate,
            "/draft-ietf-acme-ari-03/" => :window }.freeze
  private_constant :KINDS

  # What every order asks for.
  def self.steps
    KINDS.values - [:window]
  end

  # What was asked for, in order: [kind, moment].
  attr_reader :asked

  # The block gets what a request is for, and returns what it is answered with, byte by byte; nil passes it on.
  def initialize(pebble, &meddle)
    @pebble = pebble
    @meddle = meddle
    @asked = []
    @listener = TCPServer.new("127.0.0.1", 0)
    @context = OpenSSL::SSL::SSLContext.new
    @context.add_certificate(*pebble.identity)
    @threads = Queue.new
    @threads << Thread.new { loop { accept } }
  end

  def directory
    "https://#{host}/dir"
  end

  # How often it was asked for that.
  def count(kind)
    moments(kind).size
  end

  # When it was asked for that.
  def moments(kind)
    @asked.dup.filter_map { |one, moment| moment if one == kind }
  end

  def finish
    @threads.pop.kill until @threads.empty?
    @listener.close
  end

  private

  def host
    "127.0.0.1:#{@listener.local_address.ip_port}"
  end

  def accept
    socket = @listener.accept
    @threads << Thread.new do
      client = OpenSSL::SSL::SSLSocket.new(socket, @context)
      client.accept
      client.write(answer(client))
    rescue OpenSSL::SSL::SSLError, SystemCallError, IOError
      nil # The server under test has gone.
    ensure
      client&.close
      socket.close
    end
  end

  # A request each connection: what kept connections are is tested elsewhere.
  def answer(client)
    head = client.gets("\r\n\r\n") or return ""
    body = client.read(head[/^content-length: (\d+)/i, 1].to_i)
    path = head.split[1]
    kind = KINDS.find { |prefix, _| path.start_with?(prefix) }&.last || :other
    @asked << [kind, Process.clock_gettime(Process::CLOCK_MONOTONIC)]
    @meddle.call(kind) || pass(head, body)
  end

  # Pebble's answer; its addresses are those of the Host that it was asked under, which is this one.
  def pass(head, body)
    head = head.sub("\r\n\r\n", "\r\nConnection: close\r\n\r\n")
    ca = OpenSSL::SSL::SSLSocket.new(Socket.tcp("127.0.0.1", @pebble.port, connect_timeout: 5))
    ca.sync_close = true
    ca.connect
    ca.write(head, body)
    ca.read
  ensure
    ca&.close
  end
end
