# frozen_string_literal: true

# The PROXY protocol, versions 1 and 2: written by hand, and by a real haproxy.

require_relative "support/case"
require "ipaddr"
require "openssl"
require "support/certificates"
require "support/peers"

# haproxy in TCP mode: passes connections on with a header. +send+ is its option, such as send-proxy-v2.
class ForwardingHaproxy < Peers::Haproxy
  def initialize(to:, send:, tls: nil, check: false)
    super()
    @to = to
    @send = send
    @tls = tls
    @check = check
  end

  private

  def configuration
    certificate = path("both.pem")
    File.write(certificate, @tls.map(&:to_pem).join) if @tls
    <<~CONF
      global
        log stderr format raw local0
      defaults
        mode tcp
        timeout connect 5s
        timeout client 30s
        timeout server 30s
      frontend in
        bind 127.0.0.1:#{@port} #{"ssl crt #{certificate}" if @tls}
        default_backend out
      backend out
        server one 127.0.0.1:#{@to} #{@send} #{'check inter 100' if @check}
    CONF
  end
end

class ProxyProtocolTest < Case
  include Certificates

  parallel!

  APP = <<~RUBY
    run lambda { |env| [200, {}, [env.values_at("REMOTE_ADDR", "rack.url_scheme", "SERVER_PORT").join(" ")]] }
  RUBY
  SIGNATURE = "\r\n\r\n\0\r\nQUIT\n".b

  def before_setup
    super
    firebrick_only
    @peers = []
  end

  def after_teardown
    @peers.each(&:finish)
    super
  end

  def serve(version, scheme: "tcp", query: "", **options)
    start(app: APP, binds: ["#{scheme}://127.0.0.1:0?proxy_protocol=#{version}#{query}"], **options)
  end

  it "waits for headers that are on their way when it ends, but not for long" do
    server = serve("v1")
    late, silent = Array.new(2) { connect(server).write("PROXY TCP4 192.0.2.1 ") }
    sleep 0.3
    server.signal(:TERM)
    assert_logged(/TERM/, on: server)
    late.write("192.0.2.2 1 2\r\n#{request('GET', '/')}")
    assert_match(/\A192.0.2.1 /, late.read_response.body)
    assert silent.ended?
  end

  def haproxy(server, send, **options)
    peer = ForwardingHaproxy.new(to: server.port, send:, **options)
    @peers << peer
    peer.start
  end

  # A header of version 2.
  def two(command, family, body)
    [SIGNATURE, command, family, body.bytesize, body].pack("a*CCna*")
  end

  def two_inet(remote, local, remote_port, local_port, values = "")
    addresses = [remote, local].map { |address| IPAddr.new(address).hton }.join
    two(0x21, addresses.bytesize == 8 ? 0x11 : 0x21, addresses + [remote_port, local_port].pack("nn") + values)
  end

  def value(kind, bytes) = [kind, bytes.bytesize, bytes].pack("Cna*")

  # Sends the header and a request. Returns the body of the response.
  def body_after(header, server, headers = {})
    response = ask(header + request("GET", "/", headers), to: server, method: "GET")
    assert_status 200, response
    response.body
  end

  # Asserts that the connection is closed without a response.
  def assert_refused(bytes, server)
    connection = connect(server)
    connection.write(bytes) rescue SystemCallError
    assert_closed connection
  end

  it "takes the client's address from version 1" do
    server = serve("v1", settings: { "log" => { "access" => "-" } })
    assert_equal "192.0.2.7 http 80", body_after("PROXY TCP4 192.0.2.7 198.51.100.1 5000 443\r\n", server, "Host" => "a.test")
    assert_equal "2001:db8::7", body_after("PROXY TCP6 2001:db8::7 2001:db8::1 5000 443\r\n", server).split.first
    assert_equal "127.0.0.1", body_after("PROXY UNKNOWN\r\n", server).split.first
    assert wait_until { server.stdout.include?("192.0.2.7 - - ") }, "the access log lacks the client's address:\n#{server.stdout}"
  end

  it "takes the client's address from version 2" do
    server = serve("v2")
    assert_equal "192.0.2.7", body_after(two_inet("192.0.2.7", "198.51.100.1", 5000, 443), server).split.first
    assert_equal "2001:db8::7", body_after(two_inet("2001:db8::7", "2001:db8::1", 5000, 443), server).split.first
    assert_equal "127.0.0.1", body_after(two(0x20, 0x00, ""), server).split.first
    assert_equal "http", body_after(two(0x21, 0x31, "\0" * 216), server).split[-2]
    secure = value(0x20, "\x01\0\0\0\0".b + value(0x21, "TLSv1.3"))
    assert_equal %w[192.0.2.7 https], body_after(two_inet("192.0.2.7", "198.51.100.1", 1, 2, value(0xe0, "x" * 3000) + secure), server).split.first(2)
  end

  it "keeps the connection's address for all of its requests" do
    server = serve("any")
    connection = connect(server)
    connection.write("PROXY TCP4 192.0.2.7 198.51.100.1 5000 443\r\n")
    2.times do
      connection.write(request("GET", "/"))
      assert_equal "192.0.2.7", connection.read_response("GET").body.split.first
    end
  end

  it "reads a header that comes in pieces" do
    server = serve("any")
    [two_inet("192.0.2.7", "198.51.100.1", 5000, 443), "PROXY TCP4 192.0.2.7 198.51.100.1 5000 443\r\n"].each do |header|
      connection = connect(server)
      (header + request("GET", "/")).each_char.each_slice(9) do |piece|
        connection.write(piece.join)
        sleep 0.005
      end
      assert_equal "192.0.2.7", connection.read_response("GET").body.split.first
    end
  end

  it "closes connections of trusted proxies that send something else" do
    server = serve("v2")
    [request("GET", "/"), "PROXY TCP4 192.0.2.7 198.51.100.1 5000 443\r\n", two(0x21, 0x77, "x" * 12), two(0x21, 0x11, "short"),
     SIGNATURE + "\x21\x11\xff\xff".b].each { |bytes| assert_refused(bytes, server) }
    assert_logged(/a connection from 127\.0\.0\.1 to \S+ was closed: it does not begin with a PROXY header of version 2; let the proxy send one/, on: server)
    assert_equal "192.0.2.7", body_after(two_inet("192.0.2.7", "198.51.100.1", 5000, 443), server).split.first
  end

  it "closes connections of others, whatever they send" do
    server = serve("any", args: ["--trusted-proxies", "10.0.0.0/8"])
    assert_refused("PROXY TCP4 192.0.2.7 198.51.100.1 5000 443\r\n#{request('GET', '/')}", server)
    assert_logged(/a connection from 127\.0\.0\.1 to \S+ was closed: it is not in rack\.trusted_proxies/, on: server)
    assert_refused(request("GET", "/"), server)
  end

  it "does not wait for a header for ever" do
    server = serve("any", args: ["--handshake-timeout", "300ms"])
    connection = connect(server)
    connection.write("PROXY TCP4 192.0")
    assert_closed connection, within: 10
    assert_logged(/it sent no complete PROXY header within 0\.3 s/, on: server)
  end

  it "takes a port that is only tried for no mistake" do
    server = serve("any")
    connect(server).close
    assert_equal "192.0.2.7", body_after("PROXY TCP4 192.0.2.7 198.51.100.1 5000 443\r\n", server).split.first
    assert_empty server.stderr
  end

  it "reads a header on no other address" do
    server = start(app: APP)
    assert_status 400, ask("PROXY TCP4 192.0.2.7 198.51.100.1 5000 443\r\n#{request('GET', '/')}", to: server, method: "GET")
  end

  %w[send-proxy send-proxy-v2].each do |send|
    it "works behind haproxy with #{send}" do
      proxy = haproxy(serve(send == "send-proxy" ? "v1" : "v2"), send, check: true)
      socket = TCPSocket.new("127.0.0.1", proxy.port, "127.0.0.9")
      socket.write("GET / HTTP/1.0\r\n\r\n")
      assert_match(/^127\.0\.0\.9 http /, socket.read)
    ensure
      socket&.close
    end
  end

  it "learns from haproxy that the client uses TLS" do
    proxy = haproxy(serve("v2"), "send-proxy-v2-ssl-cn", tls: certificate)
    socket = TCPSocket.new("127.0.0.1", proxy.port, "127.0.0.9")
    tls = OpenSSL::SSL::SSLSocket.new(socket).tap(&:connect)
    tls.write("GET / HTTP/1.0\r\n\r\n")
    assert_match(/^127\.0\.0\.9 https /, tls.read)
  ensure
    socket&.close
  end

  it "checks haproxy's checksum" do
    proxy = haproxy(serve("v2"), "send-proxy-v2 proxy-v2-options crc32c,unique-id")
    socket = TCPSocket.new("127.0.0.1", proxy.port, "127.0.0.9")
    socket.write("GET / HTTP/1.0\r\n\r\n")
    assert_match(/^127\.0\.0\.9 http /, socket.read)
  ensure
    socket&.close
  end

  it "comes before TLS" do
    pair = certificate
    files = { "cert.pem" => pair.first.to_pem, "key.pem" => pair.last.to_pem }
    server = serve("any", scheme: "ssl", query: "&cert=cert.pem&key=key.pem", files:)
    %w[send-proxy send-proxy-v2].each do |send|
      proxy = haproxy(server, send)
      socket = TCPSocket.new("127.0.0.1", proxy.port, "127.0.0.9")
      tls = OpenSSL::SSL::SSLSocket.new(socket).tap(&:connect)
      tls.write("GET / HTTP/1.0\r\n\r\n")
      assert_match(/^127\.0\.0\.9 https /, tls.read)
      socket.close
    end
  end
end
