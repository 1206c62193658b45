# frozen_string_literal: true

# A server at max_connections with all connections in use, over TLS: new clients get an error in their own protocol.

require "support/gate"
require "support/tls_case"
require "support/http2_client"
require "open3"

class FullTlsServerTest < TlsCase
  include Gate

  parallel!

  MAX = 4

  def http2(own)
    tls = dial(own, context: ->(context) { context.alpn_protocols = ["h2"] })
    Http2Client.new(own.address, connection: tls)
  end

  def full(**settings)
    own = secure(app: APP, threads: "16:16", args: ["--log-requests"], settings: { front_threads: 1, limits: { max_connections: MAX } }.merge(settings))
    @held = hold(own, Array.new(MAX) { dial(own) })
    own
  end

  def curl(own, *options)
    out, = Open3.capture2("curl", "-sk", "--max-time", "10", *options, "-w", " %{http_version} %{http_code}", "https://127.0.0.1:#{own.port}/new")
    out
  end

  it "answers 503 over HTTP/1.1 and HTTP/2 after a handshake, and serves again when there is room" do
    own = full
    response = fetch(own)
    assert_status 503, response
    assert_equal "close", response["connection"]
    refute_nil response["retry-after"]
    assert_match(/503.* 1.1 503\z/m, curl(own, "--http1.1"))
    assert_match(/503.* 2 503\z/m, curl(own, "--http2"))
    assert wait_until { own.stdout.include?(%("GET /new HTTP/2" 503)) }, own.stdout
    assert_logged(/max_connections \(4\) are open, and none of them is idle/, on: own)
    open_gate(own, @held)
    assert(wait_until { curl(own, "--http2") == "/new 2 200" })
  end

  it "answers all requests that come together, and ends the connection" do
    own = full
    client = http2(own)
    streams = Array.new(3) { client.request("/new", scheme: "https") }
    streams.each { |stream| assert_equal [503, true], [client.answer(stream).status, client.answers[stream].ended] }
    assert client.ends?
    assert_equal :no_error, client.goaway.code
    # A connection without a request is closed.
    silent = http2(own)
    assert silent.ends?(within: 5)
    @connections.last(2).each(&:close)
    assert(wait_until { own.stats.dig("connections", "open") == MAX })
    open_gate(own, @held)
  end

  it "does not wait for those that stop in their handshake, nor tell too many" do
    own = full
    stopped = Array.new(200) { TCPSocket.new("127.0.0.1", own.port) }
    assert wait_until { own.stats.dig("tls", "failed", "displaced").to_i >= 100 }, own.stats["tls"].inspect
    assert_logged(/a TLS connection was closed before its handshake: max_connections \(4\)/, on: own)
    assert wait_until(within: 8) { own.stats.dig("tls", "failed", "timeout").to_i >= 50 }, own.stats["tls"].inspect
    stopped.each { |socket| assert socket.wait_readable(5), "it was closed" }
    # The closed connections made no room, and took none.
    assert_status 503, fetch(own)
    open_gate(own, @held)
    assert_status 200, fetch(own)
  ensure
    stopped&.each(&:close)
  end
end
