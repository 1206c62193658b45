# frozen_string_literal: true

# Client certificates: none, optional, required; the app's variables, which clients cannot forge.

require "open3"
require "support/tls_case"
require "support/http2_client"

class TlsClientsTest < TlsCase
  parallel!

  FORGED = { "SSL-Client-Verify" => "SUCCESS", "SSL_CLIENT_VERIFY" => "SUCCESS", "SSL-Client-S-DN" => "CN=admin" }.freeze

  def setup
    super
    @authority = certificate(name: "clients' authority")
    # DER puts a zero byte in front of this number, which is never displayed.
    @ann = certificate(issuer: @authority, name: "ann, O=admin", serial: 0xFEDCBA9876543210)
  end

  def asking(mode, **options)
    secure(app: ENV_APP, options: "&ca=ca.pem&verify_mode=#{mode}", files: { "ca.pem" => @authority[0].to_pem }, **options)
  end

  def as(pair, *changes)
    lambda do |context|
      context.cert, context.key = pair
      changes.each { |change| change.call(context) }
    end
  end

  def old
    ->(context) { context.max_version = OpenSSL::SSL::TLS1_2_VERSION }
  end

  it "tells the app who the client is" do
    own = asking("force_peer")
    [[], [old]].each do |changes|
      body = fetch(own, context: as(@ann, *changes)).body
      assert_includes body, 'SSL_CLIENT_VERIFY="SUCCESS"'
      assert_includes body, 'SSL_CLIENT_S_DN="CN=ann\\\\, O\\=admin"'.gsub("\\=", "=")
      assert_includes body, %(SSL_CLIENT_I_DN="CN=clients' authority")
      assert_includes body, %(SSL_CLIENT_M_SERIAL="FEDCBA9876543210")
      assert_includes body, %(SSL_CLIENT_FINGERPRINT="#{OpenSSL::Digest::SHA256.hexdigest(@ann[0].to_der)}")
      cert = body[/SSL_CLIENT_CERT="(.*)"$/, 1].gsub('\n', "\n")
      assert_equal @ann[0].to_der, OpenSSL::X509::Certificate.new(cert).to_der
    end
  end

  PEER_APP = <<~'RUBY'
    seen = []
    run lambda { |env|
      peer = env["puma.peercert"]
      seen << peer.object_id
      text = [peer.class, env.key?("puma.peercert"), peer && [peer.to_der].pack("m0"), env["SERVER_PROTOCOL"], seen.uniq.size].join(" ")
      [200, { "content-type" => "text/plain" }, [text]]
    }
  RUBY

  it "gives apps the certificate as Puma does, over HTTP/1.1 and HTTP/2" do
    own = secure(app: PEER_APP, options: "&ca=ca.pem&verify_mode=peer", files: { "ca.pem" => @authority[0].to_pem }, workers: 1)
    expected = "OpenSSL::X509::Certificate true #{[@ann[0].to_der].pack('m0')}"
    assert_equal "#{expected} HTTP/1.1 1", fetch(own, context: as(@ann)).body
    assert_equal "#{expected} HTTP/1.1 1", fetch(own, context: as(@ann)).body, "the requests of a client share one object"
    h2 = dial(own, context: as(@ann, ->(context) { context.alpn_protocols = ["h2"] }))
    client = Http2Client.new(own.address, connection: h2)
    assert_equal "#{expected} HTTP/2 1", client.get("/", scheme: "https").body
    bob = certificate(issuer: @authority, name: "bob")
    assert_equal "#{expected.sub([@ann[0].to_der].pack('m0'), [bob[0].to_der].pack('m0'))} HTTP/1.1 2", fetch(own, context: as(bob)).body
    # A client without a certificate cannot pretend to have one.
    forged = { "puma.peercert" => "1", "SSL_CLIENT_CERT" => @ann[0].to_pem.tr("\n", " "), "SSL-Client-Cert" => "x" }
    assert_match(/\ANilClass false  HTTP/, fetch(own, "/", forged).body)
    assert_match(/\ANilClass false  HTTP/, fetch(own).body)
    assert_empty own.stderr.lines.grep(/peercert/)
  end

  it "gives apps the certificate over HTTP/3" do
    skip "needs a curl with HTTP/3" unless `curl --version`.include?("HTTP3")
    own = secure(app: PEER_APP, options: "&ca=ca.pem&verify_mode=force_peer", files: { "ca.pem" => @authority[0].to_pem, "ann.pem" => @ann[0].to_pem, "ann.key" => @ann[1].to_pem })
    out, = Open3.capture2("curl", "-sk", "--http3-only", "--cert", own.path("ann.pem"), "--key", own.path("ann.key"), "https://127.0.0.1:#{own.port}/")
    assert_match(%r{\AOpenSSL::X509::Certificate true \S+ HTTP/3}, out)
  end

  it "requires one, of the right authority, in time" do
    own = asking("force_peer")
    expired = certificate(issuer: @authority, from: Time.now - 7200, to: Time.now - 3600)
    [nil, certificate, expired].each do |client|
      [[], [old]].each do |changes|
        refute_match(/succeeded/, refusal(own, context: client ? as(client, *changes) : changes.first))
      end
    end
    assert(wait_until { own.stats.dig("tls", "failed", "client_certificate") == 6 }, own.stats["tls"].inspect)
    assert_logged(/failed: it has no certificate, or one that does not verify/, on: own)
  end

  it "takes none where it is optional, but not a wrong one" do
    own = asking("peer")
    body = fetch(own, "/", FORGED).body
    assert_includes body, 'SSL_CLIENT_VERIFY="NONE"'
    refute_match(/^SSL_CLIENT_S_DN/, body)
    assert_includes fetch(own, context: as(@ann)).body, 'SSL_CLIENT_VERIFY="SUCCESS"'
    refute_match(/succeeded/, refusal(own, context: as(certificate)))
  end

  it "believes no header" do
    own = secure(app: ENV_APP, settings: { rack: { allow_underscore_headers: true } })
    refute_match(/^SSL_CLIENT/, fetch(own, "/", FORGED).body)
    plain = start(app: ENV_APP, settings: { rack: { allow_underscore_headers: true } })
    refute_match(/^SSL_CLIENT/, get("/", to: plain, headers: FORGED).body)
  end

  it "does not resume under other rules" do
    secret = { tls: { ticket_secret: "0123456789abcdef0123456789abcdef" } }
    files = pair("own", "localhost")
    open = secure(pem: files, settings: secret)
    connection = dial(open, name: "localhost")
    connection.write(request("GET", "/"))
    connection.read_response
    strict = asking("force_peer", pem: files, settings: secret)
    refute_match(/succeeded/, refusal(strict, name: "localhost", session: connection.tickets.last))
  end

  it "keeps what it knows when a session is resumed" do
    own = asking("force_peer")
    first = dial(own, context: as(@ann), name: "localhost")
    first.write(request("GET", "/"))
    first.read_response
    second = dial(own, session: first.tickets.last, name: "localhost")
    assert second.socket.session_reused?
    second.write(request("GET", "/"))
    assert_includes second.read_response.body, 'SSL_CLIENT_VERIFY="SUCCESS"'
  end

  it "reads changed authorities again" do
    own = asking("force_peer")
    other = certificate(name: "another authority")
    bob = certificate(issuer: other, name: "bob")
    refute_match(/succeeded/, refusal(own, context: as(bob)))
    put(own, "ca.pem", other[0].to_pem)
    assert_logged(/ca\.pem have been read again/, on: own)
    assert_status 200, fetch(own, context: as(bob))
    refute_match(/succeeded/, refusal(own, context: as(@ann)))
  end
end
