# frozen_string_literal: true

# A CA with scripted behaviour: stands between a server and Pebble, passes requests on, and can answer some of them itself.

require "openssl"
require "socket"

class CaProxy
  # The kinds of Pebble's paths.
  KINDS = { "/dir" => :directory, "/nonce-plz" => :nonce, "/sign-me-up" => :new_account, "/order-plz" => :new_order, "/my-order/" => :order,
            "/authZ/" => :authorization, "/chalZ/" => :challenge, "/finalize-order/" => :finalize, "/certZ/" => :certificate,
            "/draft-ietf-acme-ari-03/" => :window }.freeze
  private_constant :KINDS

  # The requests that every order makes.
  def self.steps
    KINDS.values - [:window]
  end

  # The requests so far, in order: [kind, moment].
  attr_reader :asked

  # The block gets the kind of a request, and returns the response as bytes; nil passes the request on.
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

  # The number of requests of that kind.
  def count(kind)
    moments(kind).size
  end

  # The times of the requests of that kind.
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
      nil # the server under test has closed the connection
    ensure
      client&.close
      socket.close
    end
  end

  # One request per connection. Keep-alive is tested elsewhere.
  def answer(client)
    head = client.gets("\r\n\r\n") or return ""
    body = client.read(head[/^content-length: (\d+)/i, 1].to_i)
    path = head.split[1]
    kind = KINDS.find { |prefix, _| path.start_with?(prefix) }&.last || :other
    @asked << [kind, Process.clock_gettime(Process::CLOCK_MONOTONIC)]
    @meddle.call(kind) || pass(head, body)
  end

  # Returns Pebble's response. Its URLs have the request's Host, which is this proxy's.
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
