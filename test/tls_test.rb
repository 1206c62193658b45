# frozen_string_literal: true

# TLS addresses: certificates by name, changed files, refusals and their form, resumed sessions.

require "support/redis_server"
require "support/tls_case"

class TlsTest < TlsCase
  include RedisServer

  parallel!

  VERSIONS = { "1.2" => OpenSSL::SSL::TLS1_2_VERSION, "1.3" => OpenSSL::SSL::TLS1_3_VERSION }.freeze

  def only(version)
    ->(context) { context.min_version = context.max_version = VERSIONS.fetch(version) }
  end

  def named(*all)
    files = all.map { |name, *hosts| pair(name, *hosts) }.reduce(:merge)
    names = all.map(&:first)
    settings = { tls: { cert: names.map { |name| "#{name}.pem" }, key: names.map { |name| "#{name}.key" } } }
    [files, settings]
  end

  it "serves HTTPS with TLS 1.2 and 1.3, and the app knows" do
    own = secure(app: ENV_APP)
    VERSIONS.each_key do |version|
      connection = dial(own, context: only(version))
      2.times do
        connection.write(request("GET", "/", "Host" => "localhost"))
        assert_status 200, connection.read_response
      end
      assert_equal "TLSv#{version}", connection.socket.ssl_version
    end
    body = fetch(own, "/", { "Host" => "localhost" }).body
    assert_includes body, 'rack.url_scheme="https"'
    assert_includes body, 'HTTPS="on"'
    assert_includes body, 'SERVER_PORT="443"'
    refute_includes body, "SSL_CLIENT"
    assert_match(%r{\Ahttps://127\.0\.0\.1:\d+\z}, own.listeners.first)
  end

  it "offers HTTP by ALPN and prefers its own order of ciphers" do
    own = secure(pem: pair("own", "localhost", "127.0.0.1", key: OpenSSL::PKey::RSA.new(2048)))
    connection = dial(own, context: ->(context) { context.alpn_protocols = %w[http/1.1] })
    assert_equal "http/1.1", connection.socket.alpn_protocol
    connection = dial(own, context: ->(context) { context.alpn_protocols = %w[http/1.1 h2] })
    assert_equal "h2", connection.socket.alpn_protocol
    assert_nil dial(own).socket.alpn_protocol
    out, = Open3.capture2e("curl", "-sk", "--http2", "-w", " %{http_version}", "https://127.0.0.1:#{own.port}/")
    assert_equal "hello 2", out
    connection = dial(own, context: lambda { |context|
      only("1.2").call(context)
      context.ciphers = "ECDHE-RSA-AES256-GCM-SHA384:ECDHE-RSA-AES128-GCM-SHA256"
    })
    assert_equal "ECDHE-RSA-AES128-GCM-SHA256", connection.socket.cipher[0]
    connection = dial(own, context: lambda { |context|
      only("1.2").call(context)
      context.ciphers = "ECDHE-RSA-CHACHA20-POLY1305:ECDHE-RSA-AES128-GCM-SHA256"
    })
    assert_equal "ECDHE-RSA-CHACHA20-POLY1305", connection.socket.cipher[0], "a client without AES in hardware"
  end

  it "chooses the certificate by name: exact, wildcard, default" do
    files, settings = named(%w[first a.test], ["wild", "*.b.test"], ["exact", "www.b.test"])
    own = start(app: HELLO, files:, settings:, binds: ["ssl://127.0.0.1:0"])
    served = ->(name) { dial(own, name:).served }
    assert_equal "first", served.call("a.test")
    assert_equal "exact", served.call("WWW.b.test")
    assert_equal "wild", served.call("api.b.test")
    assert_equal "first", served.call("x.api.b.test"), "a wildcard is one label"
    assert_equal "first", served.call("unknown.test")
    assert_equal "first", served.call(nil)
  end

  it "chooses among certificates in tables of their own" do
    tables = %w[one two].map { |name| "[[tls.certificates]]\ncert = \"#{name}.pem\"\nkey = \"#{name}.key\"\n" }.join
    files = pair("one", "one.test").merge(pair("two", "two.test", "*.two.test"), "firebrick.toml" => tables)
    own = start(app: HELLO, files:, binds: ["ssl://127.0.0.1:0"])
    assert_equal(%w[one two two one], ["one.test", "two.test", "x.two.test", "other.test"].map { |name| dial(own, name:).served })
    put(own, "two.pem", "")
    assert_logged(/two\.pem cannot be used: it is empty: write the certificate into it.*\n.*stays in force/, on: own)
    assert_equal "two", dial(own, name: "two.test").served
    File.write(own.path("firebrick.toml"), "[[tls.certificates]]\ncert = \"one.pem\"\n")
    _, err, code = own.command_line("check", own.dir)
    refute_equal 0, code
    assert_match(/firebrick\.toml:1: tls\.certificates\.key = a table: expected key, the path of a file/, err)
  end

  it "serves an address's own certificate, and those of [tls] for other names" do
    files, settings = named(%w[shared shared.test])
    own = secure(files:, settings:)
    assert_equal "own", dial(own, name: "localhost").served
    assert_equal "shared", dial(own, name: "shared.test").served
    assert_equal "own", dial(own, name: "unknown.test").served
  end

  it "refuses unknown names where that is asked for" do
    own = secure(settings: { tls: { strict_names: true } })
    assert_equal "own", dial(own, name: "localhost").served
    assert_match(/unrecognized name/i, refusal(own, name: "unknown.test"))
    assert_logged(/for unknown\.test failed: there is no certificate for the name/, on: own)
    assert_equal 1, own.stats.dig("tls", "failed", "unknown_name")
  end

  it "reads changed files again, and keeps the old pair while they do not fit together" do
    own = secure
    assert_equal "own", dial(own).served
    kept = dial(own)
    new = pair("new", "localhost")
    put(own, "own.pem", new["new.pem"])
    sleep 1.2
    assert_equal "own", dial(own).served, "the key is still the old one"
    put(own, "own.key", new["new.key"])
    assert(wait_until { dial(own).served == "new" }, "the new certificate is not served")
    assert_logged(/certificate .*own\.pem has been read again: for localhost/, on: own)
    kept.write(request("GET", "/"))
    assert_status 200, kept.read_response, "a connection that was there before"

    last = pair("last", "localhost")
    File.binwrite(own.path("own.pem"), last["last.pem"][0, 300])
    assert_logged(/own\.pem cannot be used: it ends in the middle.*\n.*stays in force/, on: own)
    assert_equal "new", dial(own).served
    File.binwrite(own.path("own.key"), last["last.key"])
    File.binwrite(own.path("own.pem"), last["last.pem"])
    assert(wait_until { dial(own).served == "last" })
  end

  it "explains files that cannot be used" do
    other = pair("other")
    encrypted = OpenSSL::PKey::RSA.new(2048).to_pem(OpenSSL::Cipher.new("aes-128-cbc"), "secret")
    good = pair("own")
    {
      "no such file" => [good.merge("own.pem" => nil), /own\.pem cannot be read: No such file/],
      "empty" => [good.merge("own.pem" => ""), /own\.pem cannot be used: it is empty: write the certificate into it/],
      "empty key" => [good.merge("own.key" => ""), /own\.key cannot be used: it is empty: write the certificate's private key/],
      "swapped" => [good.merge("own.pem" => good["own.key"], "own.key" => good["own.pem"]), /are the two files swapped/],
      "misfit" => [good.merge("own.key" => other["other.key"]), /the private key does not belong to the certificate \(CN=own\): give the key/],
      "order" => [good.merge("own.pem" => other["other.pem"] + good["own.pem"]), /wrong order: the key belongs to certificate 2/],
      "encrypted" => [good.merge("own.key" => encrypted), /encrypted with a password: decrypt it/],
      "no PEM" => [good.merge("own.pem" => "hello"), /there is no certificate/]
    }.each do |what, (files, expected)|
      own = Server.new(app: HELLO, files: files.compact, binds: ["ssl://127.0.0.1:0?cert=own.pem&key=own.key"])
      _, err, code = own.command_line("serve", "-b", "ssl://127.0.0.1:0?cert=own.pem&key=own.key")
      assert_equal 1, code, what
      assert_match expected, err, what
      FileUtils.remove_entry(own.base)
    end
  end

  it "shows nothing of a file that it cannot read as a key" do
    good = pair("own")
    secret = good["own.key"].lines[1].strip[8, 24]
    numbers = secret[0, 6].bytes.join(", ")
    escaped = good["own.key"].gsub("\n", '\\n')
    {
      "line breaks written out" => [{ "own.key" => escaped }, /own\.key cannot be used: its line breaks are written out, as a backslash and a letter \(line 1\)/],
      "written out in the chain's place" => [{ "own.pem" => escaped }, /own\.pem cannot be used: its line breaks are written out/],
      "on one line" => [{ "own.key" => good["own.key"].tr("\n", " ") }, /own\.key cannot be used: .*\(line 1\)/],
      "cut off" => [{ "own.key" => good["own.key"].lines[0..1].join }, /-----END is missing/],
      "damaged" => [{ "own.key" => good["own.key"].sub(secret, "!#{secret}") }, /is not Base64 \(line 1\)/],
      "no key in it" => [{ "own.key" => good["own.key"].sub("\n", "\nAAAA") }, /own\.key cannot be used/]
    }.each do |what, (files, expected)|
      own = Server.new(app: HELLO, files: good.merge(files), binds: ["ssl://127.0.0.1:0?cert=own.pem&key=own.key"])
      %w[serve check].each do |command|
        out, err, code = own.command_line(command, "-b", "ssl://127.0.0.1:0?cert=own.pem&key=own.key")
        assert_equal 1, code, what
        assert_match expected, err, what
        [secret, secret[0, 8], numbers].each { |part| refute_includes out + err, part, "#{what}: a part of the key" }
      end
      FileUtils.remove_entry(own.base)
    end
  end

  it "lists certificates of files with `firebrick certs`, running or not" do
    own = secure
    out, = own.command_line("certs", own.dir)
    assert_match(/^localhost, 127\.0\.0\.1: valid$/, out)
    assert_match(/file +\S*own\.pem$/, out)
    json, = own.command_line("certs", own.dir, "--json")
    assert_equal([%w[localhost 127.0.0.1]], JSON.parse(json).map { |one| one["names"] })
    own.signal("TERM")
    own.wait_exit
    File.write(own.path("firebrick.toml"), %(bind = "ssl://127.0.0.1:0?cert=own.pem&key=own.key"\n))
    out, = own.command_line("certs", own.dir)
    assert_match(/^localhost, 127\.0\.0\.1: valid$/, out)
  ensure
    FileUtils.rm_f(own.path("firebrick.toml")) if own
  end

  it "serves an expired certificate with a loud line, and warns of a missing intermediate" do
    authority = certificate
    past = { from: Time.now - 7200, to: Time.now - 3600 }
    own = secure(pem: pair("own", "localhost", issuer: authority, **past))
    assert_equal "own", dial(own).served
    assert_logged(/warning: .*own\.pem: it EXPIRED 60 minutes ago: .*; replace the file/, on: own)
    assert_logged(/without an intermediate certificate/, on: own)
    assert own.stats.dig("tls", "certificates", 0, "expired")
  end

  it "answers plain HTTP with a sentence" do
    own = secure
    response = get("/", to: own)
    assert_status 400, response
    assert_includes response.body, "This port speaks HTTPS"
    assert_equal 1, own.stats.dig("tls", "failed", "plain_http")
    connection = connect(own).write("SSH-2.0-x\r\n")
    assert_closed connection
    assert_equal 1, own.stats.dig("tls", "failed", "not_tls")
  end

  it "ends handshakes that take too long" do
    own = secure(settings: { timeouts: { handshake: 0.5 } })
    silent = connect(own)
    half = connect(own).write("\x16\x03\x01\x02\x00\x01\x00".b)
    assert silent.ended?(within: 10)
    assert half.ended?(within: 10)
    assert(wait_until { own.stats.dig("tls", "failed", "timeout") == 2 })
    assert_status 200, fetch(own)
  end

  it "refuses TLS 1.0 and 1.1, and 1.2 if told to" do
    own = secure
    # A ClientHello of TLS 1.0 with two suites.
    hello = ["010000370301", "00" * 32, "00", "0004", "c013002f", "0100", "000a", "000a0004000200170000"].join
    body = [hello].pack("H*")
    body[1, 3] = [body.bytesize - 4].pack("N")[1, 3]
    connection = connect(own).write("\x16\x03\x01".b + [body.bytesize].pack("n") + body)
    assert connection.ended?
    assert_equal "\x15\x03".b, connection.buffered[0, 2], "an alert"
    strict = secure(settings: { tls: { min_version: "1.3" } })
    assert_match(/protocol version|version/i, refusal(strict, context: only("1.2")))
    assert_equal 1, strict.stats.dig("tls", "failed", "version")
    assert_status 200, fetch(strict, context: only("1.3"))
  end

  it "resumes sessions after a restart, and on machines with the same secret" do
    files = pair("own", "localhost")
    secret = { tls: { ticket_secret: "0123456789abcdef0123456789abcdef" } }
    state = Dir.mktmpdir
    kept = [{ env: { "XDG_STATE_HOME" => state } }] * 2
    other = [{ settings: secret }, { settings: secret }]
    [kept, other].each do |first, second|
      VERSIONS.each_key do |version|
        before = secure(pem: files, **first)
        sessions = ticket(before, version)
        before.signal("TERM")
        before.wait_exit
        after = secure(pem: files, **second)
        connection = dial(after, session: sessions.last, name: "localhost", context: only(version))
        assert connection.socket.session_reused?, "TLS #{version}"
        assert_equal [0, 1], after.stats["tls"].values_at("full", "resumed")
      end
    end
    assert_equal 0o600, File.stat(File.join(state, "firebrick/tickets.secret")).mode & 0o777
    refute dial(secure(pem: files), session: ticket(secure(pem: files), "1.3").last, name: "localhost").socket.session_reused?
  ensure
    FileUtils.remove_entry(state) if state
  end

  it "resumes sessions of servers that share a Redis, and starts without it" do
    with_redis do |url, redis|
      files = pair("own", "localhost")
      shared = ->(**more) { secure(pem: files, settings: { shared: { redis: url, **more } }) }
      first = shared.call
      # A new session each time, because clients drop one that was not resumed.
      resumes = ->(own) { dial(own, session: ticket(first, "1.3").last, name: "localhost").socket.session_reused? }
      assert resumes[shared.call]
      refute resumes[shared.call(group: "other")]
      Process.kill("STOP", redis)
      late = shared.call
      assert_match(/the secret of session tickets is not the other servers': Redis on 127.0.0.1:\d+: no reply within 2 s/, late.stderr)
      refute resumes[late]
      Process.kill("CONT", redis)
      wait_until(within: 30) { late.stderr.include?("the secret of session tickets is the other servers' from now on") } or flunk late.stderr
      assert resumes[late]
    ensure
      Process.kill("CONT", redis)
    end
  end

  def ticket(own, version)
    connection = dial(own, name: "localhost", context: only(version))
    connection.write(request("GET", "/"))
    connection.read_response
    connection.tickets << connection.socket.session if connection.tickets.empty?
    connection.tickets
  end

  it "counts handshakes and shows the certificates" do
    own = secure
    2.times { fetch(own) }
    tls = own.stats["tls"]
    assert_equal [2, 2], [tls["full"], tls["versions"]["TLSv1.3"]]
    assert_equal([%w[localhost 127.0.0.1]], tls["certificates"].map { |one| one["names"] })
    out, = own.command_line("check", "-b", "ssl://127.0.0.1:0?cert=own.pem&key=own.key")
    assert_match(/for localhost, 127\.0\.0\.1, self-signed, until/, out)
  end

  it "names what it cannot do for Puma's words" do
    {
      "ssl_cipher_filter=ALL" => /cipher suites are fixed/,
      "verify_mode=peer" => /needs ca=FILE/,
      "key_password_command=x" => /must not be encrypted/
    }.each do |option, expected|
      own = Server.new(app: HELLO, files: pair("own"))
      _, err, code = own.command_line("check", "-b", "ssl://127.0.0.1:0?cert=own.pem&key=own.key&#{option}")
      refute_equal 0, code
      assert_match expected, err
      FileUtils.remove_entry(own.base)
    end
    _, err, = Server.new(app: HELLO).command_line("check", "-b", "ssl://127.0.0.1:0")
    assert_match(/there is no certificate for ssl/, err)
  end
end
