# frozen_string_literal: true

# HTTP/3 in the real Chromium, and the fields that lead clients to it.

require "io/wait"
require "json"
require "open3"
require "socket"
require "support/browser"
require "support/tls_case"

class Http3Test < TlsCase
  parallel!

  APP = <<~'RUBY'
    run lambda { |env|
      said = "#{env['SERVER_PROTOCOL']} #{env['rack.url_scheme']} #{env['rack.input']&.read.to_s.bytesize} #{env['rack.hijack?'].inspect}"
      body = env["PATH_INFO"] == "/big" ? "b" * 3_000_000 : "<!doctype html><title>three</title><p>#{said}</p>"
      [200, { "content-type" => "text/html" }, [body]]
    }
  RUBY

  # A browser that uses QUIC for the server without its Alt-Svc, and accepts its certificate.
  def browse(own, key)
    der = OpenSSL::PKey.read(key).public_to_der
    flags = ["--origin-to-force-quic-on=127.0.0.1:#{own.port}",
             "--ignore-certificate-errors-spki-list=#{[OpenSSL::Digest::SHA256.digest(der)].pack('m0')}"]
    browser = Browser.new(flags:)
    yield browser.page
  ensure
    browser&.close
  end

  it "serves Chromium: pages, uploads, downloads, many requests at once" do
    skip "needs Chromium" unless Browser.installed?
    pem = pair("own", "localhost", "127.0.0.1")
    own = secure(app: APP, pem:, args: ["--log-requests"])
    browse(own, pem.fetch("own.key")) do |page|
      response = page.goto("https://127.0.0.1:#{own.port}/")
      assert_equal 200, response.status
      assert_equal "h3", page.evaluate("performance.getEntriesByType('navigation')[0].nextHopProtocol")
      assert_equal "HTTP/3 https 0 false", page.evaluate("document.querySelector('p').textContent")
      assert_equal 3_000_000, page.evaluate("fetch('/big').then(r => r.text()).then(t => t.length)")
      upload = "fetch('/up', { method: 'POST', body: 'u'.repeat(1500000) }).then(r => r.text())"
      assert_includes page.evaluate(upload), "HTTP/3 https 1500000 false"
      many = "Promise.all([...Array(200).keys()].map(n => fetch('/n' + n).then(r => r.status))).then(all => all.filter(s => s == 200).length)"
      assert_equal 200, page.evaluate(many)
    end
    assert wait_until { own.stdout.include?(%("POST /up HTTP/3" 200)) }, own.stdout
    assert_operator own.stats.dig("tls", "full"), :>=, 1
  end

  it "names the cipher suite in the app's env, the log and the statistics, as over TCP" do
    authority = certificate(name: "clients' authority")[0].to_pem
    own = secure(app: ENV_APP, files: { "ca.pem" => authority }, options: "&ca=ca.pem&verify_mode=peer",
                 settings: { log: { access: "access.log", format: "json" } })
    expected = 'SSL_CIPHER="TLS_AES_128_GCM_SHA256"'
    out, status = Open3.capture2e(Server.ruby_files, Server.binary, "bench", "https://127.0.0.1:#{own.port}/", *%w[-k --http 3 -c 1 -n 1 --expect-body], expected)
    assert status.success?, out
    assert_includes fetch(own).body, expected
    lines = -> { File.readlines(own.path("access.log")).map { |line| JSON.parse(line) } }
    assert(wait_until { lines.call.size == 2 })
    assert_equal ["TLS_AES_128_GCM_SHA256"], lines.call.map { |line| line["tls_cipher"] }.uniq
    assert_equal({ "TLS_AES_128_GCM_SHA256" => 2 }, own.stats.dig("tls", "ciphers"))
  end

  it "announces itself once on each connection over TCP" do
    own = secure
    connection = dial(own)
    answers = Array.new(2) do
      connection.write(request("GET", "/"))
      connection.read_response
    end
    assert_equal [%(h3=":#{own.port}"; ma=86400), nil], (answers.map { |response| response["alt-svc"] })
  end

  it "is off when it is told to be" do
    own = secure(args: ["--no-http3"])
    assert_nil fetch(own)["alt-svc"]
    UDPSocket.new.tap { |free| free.bind("127.0.0.1", own.port) }.close
  end

  # A bound UDP socket and its port, which no TCP socket has.
  def udp_only
    loop do
      socket = UDPSocket.new
      socket.bind("127.0.0.1", 0)
      port = socket.addr[1]
      TCPServer.new("127.0.0.1", port).close
      return [socket, port]
    rescue Errno::EADDRINUSE
      socket.close
    end
  end

  it "serves without it when the UDP port is taken, and says so" do
    # Its number must be free for TCP.
    taken, port = udp_only
    own = start(app: HELLO, files: pair("own", "127.0.0.1"), binds: ["ssl://127.0.0.1:#{port}?cert=own.pem&key=own.key"])
    assert_logged(%r{HTTP/3 is off: cannot bind UDP 127\.0\.0\.1:#{port}: .*in use}, on: own)
    response = fetch(own)
    assert_equal [200, nil], [response.status, response["alt-svc"]]
  ensure
    taken&.close
  end

  # HKDF-Expand-Label (RFC 8446 section 7.1), of one block.
  def expand(secret, label, length)
    info = [length].pack("n") + [label.bytesize + 6].pack("C") + "tls13 #{label}" + "\0\1"
    OpenSSL::HMAC.digest("SHA256", secret, info)[0, length]
  end

  # The first packet of a QUIC connection (RFC 9001 section 5), with an incomplete ClientHello.
  def initial_packet
    ids = Array.new(2) { OpenSSL::Random.random_bytes(8) }
    secret = OpenSSL::HMAC.digest("SHA256", ["38762cf7f55934b34d179ae6a4c80cadccbb7f0a"].pack("H*"), ids[0])
    secret = expand(secret, "client in", 32)
    payload = [6, 0, 0x44, 0, 1, 0, 0x10, 0].pack("C*").ljust(1180, "\0".b)
    payload = payload.byteslice(0, 4) + payload.byteslice(4, 1024) + "\0".b * 152
    header = [0xc3, 1].pack("CN") + ids.sum("".b) { |id| [8].pack("C") + id } + [0, 0x4000 | (payload.bytesize + 20), 0].pack("CnN")
    cipher = OpenSSL::Cipher.new("aes-128-gcm").encrypt
    cipher.key = expand(secret, "quic key", 16)
    cipher.iv = expand(secret, "quic iv", 12)
    cipher.auth_data = header
    sealed = cipher.update(payload) + cipher.final + cipher.auth_tag
    mask = OpenSSL::Cipher.new("aes-128-ecb").encrypt.tap { |one| one.key = expand(secret, "quic hp", 16) }.update(sealed[0, 16]).bytes
    header.setbyte(0, header.getbyte(0) ^ (mask[0] & 0x0f))
    4.times { |n| header.setbyte(header.bytesize - 4 + n, header.getbyte(header.bytesize - 4 + n) ^ mask[1 + n]) }
    header + sealed
  end

  it "gives no place to clients that begin and prove nothing" do
    own = secure(settings: { limits: { max_connections: 20 } })
    idle = Array.new(15) { dial(own).tap { |connection| assert_alive(connection) } }
    sockets = Array.new(150) do
      UDPSocket.new.tap { |socket| socket.connect("127.0.0.1", own.port) && socket.send(initial_packet, 0) }
    end
    # The server requests address validation of most of them: a Retry packet (RFC 9000 section 17.2.5).
    kinds = sockets.map { |socket| socket.wait_readable(2) && socket.recv(2000).getbyte(0) }
    assert_operator kinds.count { |first| first && first & 0xf0 == 0xf0 }, :>=, 100, kinds.tally.inspect
    4.times { assert_status 200, fetch(own) }
    idle.each { |connection| assert_alive(connection) }
  ensure
    sockets&.each(&:close)
  end

  it "ends at TERM although datagrams without meaning arrive" do
    own = secure
    noise = UDPSocket.new
    noise.connect("127.0.0.1", own.port)
    200.times { |n| noise.send([n, 0xc0, 0x40].pack("CCC") * (n + 1), 0) }
    assert_status 200, fetch(own)
    own.signal("TERM")
    assert_equal 0, own.wait_exit
  ensure
    noise&.close
  end
end
