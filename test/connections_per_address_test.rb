# frozen_string_literal: true

# limits.max_connections_per_address: the number of connections that an address may have open, in all protocols.

require "open3"
require "support/http2_client"
require "support/quic_go"
require "support/tls_case"

class ConnectionsPerAddressTest < TlsCase
  parallel! slow: 40

  APP = %(run ->(env) { [200, { "content-type" => "text/plain" }, [env["REMOTE_ADDR"].to_s]] }\n)
  MOST = 3

  def limited(trusted: ["none"], most: MOST, **options)
    settings = { rack: { trusted_proxies: trusted }, limits: { max_connections_per_address: most }, timeouts: { keep_alive: 60, header: 60 } }
    start(app: APP, settings:, **options)
  end

  # A connection from another address of this machine.
  def connect_from(address, to)
    Connection.allocate.tap do |connection|
      connection.define_singleton_method(:open_socket) { |(host, port), _| TCPSocket.new(host, port, address) }
      connection.send(:initialize, to.address)
      @connections << connection
    end
  end

  def status(connection, path = "/")
    connection.write(request("GET", path))
    connection.read_response.status
  end

  it "refuses what an address has beyond it, and serves other addresses" do
    own = limited
    held = Array.new(MOST) { connect(own).tap { |connection| assert_equal 200, status(connection) } }
    2.times do
      refused = connect(own)
      response = refused.read_response
      assert_status 429, response
      assert response["retry-after"]
      assert_closed refused
    end
    assert_logged(/a connection from 127.0.0.1 was refused: 127.0.0.1 has 3 connections open \(limits.max_connections_per_address\)/, on: own)
    assert_equal 2, own.stats.dig("connections", "refused_of_address")
    assert_equal 200, status(connect_from("127.0.0.2", own))
    held.each { |connection| assert_alive connection }
    held.first.close
    assert(wait_until { status(connect(own)) == 200 }, "there is room again")
  end

  it "does not count proxies that are trusted, nor Unix sockets" do
    own = limited(trusted: ["127.0.0.1"])
    2.times { Array.new(MOST) { assert_equal 200, status(connect(own)) } }
    unix = limited(binds: ["unix://app.sock"])
    Array.new(2 * MOST) { assert_equal 200, status(connect(unix)) }
  end

  it "counts the addresses of PROXY headers" do
    own = limited(trusted: ["127.0.0.1"], binds: ["tcp://127.0.0.1:0?proxy_protocol=v1"])
    client = lambda { |address|
      connect(own).write("PROXY TCP4 #{address} 192.0.2.99 1 2\r\n").then { |connection| status(connection) }
    }
    assert_equal [200, 200, 200, 429, 200], [*["192.0.2.1"] * 4, "192.0.2.2"].map(&client)
  end

  it "answers over TLS and HTTP/2, too" do
    own = secure(app: APP, settings: { rack: { trusted_proxies: ["none"] }, limits: { max_connections_per_address: MOST }, timeouts: { keep_alive: 60 } })
    Array.new(MOST) { dial(own).tap { |connection| assert_equal 200, status(connection) } }
    assert_equal 429, status(dial(own))
    tls = dial(own, context: ->(context) { context.alpn_protocols = ["h2"] })
    client = Http2Client.new(own.address, connection: tls)
    assert_equal 429, client.get("/", scheme: "https").status
  end

  it "refuses connections of HTTP/3" do
    skip "needs Go and quic-go: script/setup test" unless QuicGo.client
    own = secure(app: APP, settings: { rack: { trusted_proxies: ["none"] }, limits: { max_connections_per_address: 1 }, timeouts: { keep_alive: 60 } })
    holder = IO.popen(QuicGo.command(own, "/", "-hold"))
    assert_equal "holding\n", holder.gets
    assert_match(/EXCESSIVE_LOAD|refused/i, QuicGo.ask(own, "/").first["error"])
    assert_equal 429, fetch(own).status, "they count together"
    assert_operator own.stats.dig("connections", "refused_of_address"), :>=, 2
  ensure
    if holder
      Process.kill(:KILL, holder.pid)
      holder.close
    end
    assert(wait_until(within: 60) { fetch(own).status == 200 }) if own
  end
end
