# frozen_string_literal: true

# Certificates that are obtained and renewed automatically from a real CA (Pebble): the three challenges, storage, renewal,
# failures, names on demand.

require "support/acme_case"

class AcmeTest < AcmeCase
  parallel! slow: true

  it "obtains a certificate by http-01 and serves it" do
    ca = pebble
    own = obtain(ca, "--acme-email", "owner@a.test", "--acme-challenge", "http-01", domains: [NAME, "b.test"])
    cert = wait_for_certificate(ca.tls_port)
    assert_equal [NAME, "b.test"].sort, names(cert).sort
    store = OpenSSL::X509::Store.new.tap { |all| all.add_cert(ca.root) }
    chain = handshake(ca.tls_port, NAME).peer_cert_chain
    assert store.verify(chain.first, chain.drop(1)), "the chain leads to the CA's root: #{store.error_string}"
    assert_match(/\AHTTP.1\.1 200 .*hello/m, get_https(ca.tls_port))
    assert_logged(/certificate for #{NAME}, b\.test obtained from .*Pebble.*, valid until .* UTC; it is renewed on/, on: own)
    assert_equal 1, ca.issued
    path = "/.well-known/acme-challenge/token-_1"
    [NAME, "B.test", "b.test:80"].each { |host| assert_match(/\Atoken-_1\.[\w-]{43}\z/, get(path, to: own, headers: { "Host" => host }).body, host) }
    ["c.test", "x.b.test", "127.0.0.1"].each { |host| assert_status 404, get(path, to: own, headers: { "Host" => host }), host }
  end

  it "keeps keys to itself" do
    ca = pebble
    obtain(ca)
    wait_for_certificate(ca.tls_port)
    wait_until("the files") { stored("*.pem").any? && stored("#{NAME}.json").any? }
    files = stored("*").select { |file| File.file?(file) }
    assert_equal %w[account.json www.a.test.json www.a.test.lock www.a.test.pem], files.map { |file| File.basename(file) }.sort - ["account.lock"]
    files.each { |file| assert_equal "600", (File.stat(file).mode & 0o777).to_s(8), file }
    assert_equal "700", (File.stat(File.dirname(files.first)).mode & 0o777).to_s(8)
    text = File.read(stored("*.pem").first)
    assert_match(/\A-----BEGIN PRIVATE KEY-----.*BEGIN CERTIFICATE.*BEGIN CERTIFICATE/m, text, "key and chain are one file")
  end

  it "shows certificates with and without a running server" do
    ca = pebble
    own = obtain(ca)
    cert = wait_for_certificate(ca.tls_port)
    wait_until("the figures") { entry(own)["not_after"] }
    facts = entry(own)
    assert_equal [[NAME], nil, 0, ca.directory], facts.values_at("names", "error", "failures", "directory")
    assert_equal cert.not_after, Time.iso8601(facts["not_after"])
    assert_operator Time.iso8601(facts["next_order"]), :<, cert.not_after
    words = ["certs", "--acme-directory", ca.directory, "--certs-dir", @certs, "--domain", NAME]
    shown, _, code = own.command_line(*words, own.dir)
    assert_equal 0, code
    assert_match(/\A#{NAME}: valid\n  issuer .*Pebble.*\n  from .*\n  until .*\n  next order .* \(in \d+ .*\)\n/, shown)
    assert_includes own.command_line("stats", own.dir).first, "certificates #{NAME}: valid for"
    own.signal("TERM")
    own.wait_exit
    without, _, code = own.command_line(*words, "--json", own.dir)
    assert_equal 0, code
    assert_equal [[NAME], facts["not_after"]], JSON.parse(without).first.values_at("names", "not_after")
  end

  it "obtains a certificate by tls-alpn-01 without port 80" do
    ca = pebble
    obtain(ca, binds: ["ssl://127.0.0.1:#{ca.tls_port}"])
    assert_equal [NAME], names(wait_for_certificate(ca.tls_port))
  end

  it "obtains a wildcard by dns-01 with the user's command" do
    ca = pebble
    obtain(ca, "--acme-dns-command", ca.dns_command, domains: ["*.a.test", "b.test"])
    assert_equal ["*.a.test", "b.test"], names(wait_for_certificate(ca.tls_port, "any.a.test")).sort
    wait_until("the record to be removed") { ca.dns_changes.any? { |line| line.start_with?("remove _acme-challenge.a.test ") } }
    assert_match(/\Aadd _acme-challenge\.a\.test [\w-]{43}\z/, ca.dns_changes.first)
  end

  it "obtains a certificate for an IP address" do
    ca = pebble
    obtain(ca, domains: ["127.0.0.1"])
    assert_equal ["127.0.0.1"], names(wait_for_certificate(ca.tls_port, nil))
  end

  it "obtains several certificates" do
    ca = pebble
    toml = "[[acme.certificates]]\ndomains = [\"c.test\"]\n[[acme.certificates]]\ndomains = [\"d.test\"]\nchallenge = \"tls-alpn-01\"\n"
    file = File.join(@certs, "more.toml")
    File.write(file, toml)
    obtain(ca, "--config", file)
    found = [NAME, "c.test", "d.test"].map { |name| names(wait_for_certificate(ca.tls_port, name)) }
    assert_equal [[NAME], ["c.test"], ["d.test"]], found
  end

  it "uses what is stored after a restart, while the CA is away" do
    ca = pebble
    own = obtain(ca)
    serial = wait_for_certificate(ca.tls_port).serial
    wait_until("the file") { stored("*.pem").any? }
    own.signal("TERM")
    own.wait_exit
    ca.stop
    again = obtain(ca)
    assert_equal serial, certificate(ca.tls_port)&.serial, "it is served from the first connection on"
    refute_includes again.stderr, "no certificate:"
  end

  it "serves plain HTTP while the CA is away, says so, and obtains the certificate when it is back" do
    ca = pebble(started: false)
    own = obtain(ca)
    assert_logged(/no certificate: #{NAME}: .*127\.0\.0\.1.*cannot connect.*there is no certificate yet; next attempt in \d+ s/, on: own)
    assert_status 200, get("/", to: own, headers: { "Host" => NAME })
    assert_nil certificate(ca.tls_port), "the handshake fails without a certificate"
    assert_operator entry(own)["failures"], :>=, 1
    assert_match(/last error .*cannot connect/, own.command_line("certs", own.dir).first)
    ca.start
    wait_for_certificate(ca.tls_port)
    wait_until("the error to be gone") { entry(own)["error"].nil? }
  end

  it "redirects to https when there is a certificate, and not before" do
    ca = pebble(started: false)
    own = obtain(ca)
    assert_status 200, get("/", to: own, headers: { "Host" => NAME })
    ca.start
    wait_for_certificate(ca.tls_port)
    response = get("/path?query", to: own, headers: { "Host" => NAME })
    assert_status 308, response
    assert_equal "https://#{NAME}:#{ca.tls_port}/path?query", response["location"]
  end

  it "quotes the CA when a domain points elsewhere, and tries again" do
    ca = pebble
    ca.resolve_to("127.0.0.9")
    own = obtain(ca, "--acme-challenge", "http-01")
    assert_logged(/no certificate: #{NAME} \(http-01\): the CA says: .*127\.0\.0\.9.*check that its A and AAAA records point here/, on: own)
    ca.resolve_to("127.0.0.1")
    wait_for_certificate(ca.tls_port)
    assert_operator own.stderr.scan("no certificate:").size, :>=, 1
  end

  it "takes another challenge after a failure" do
    ca = pebble
    # Another program has the CA's HTTP port.
    squatter = TCPServer.new("127.0.0.1", ca.http_port)
    obtain(ca, binds: ["tcp://127.0.0.1:0", "ssl://127.0.0.1:#{ca.tls_port}"])
    thread = Thread.new do
      loop do
        client = squatter.accept
        client.write("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        client.close
      end
    end
    wait_for_certificate(ca.tls_port)
  ensure
    thread&.kill
    squatter&.close
  end

  it "renews a certificate with nobody asking" do
    ca = pebble(validity: 24)
    own = obtain(ca)
    first = wait_for_certificate(ca.tls_port).serial
    wait_until("another certificate", within: PATIENCE) { certificate(ca.tls_port)&.then { |cert| cert.serial != first } }
    assert_equal 1, ca.accounts, "one account for all orders"
    refute_includes own.stderr, "no certificate:"
  end

  it "serves an expired certificate, says so loudly, and replaces it" do
    ca = pebble(validity: 4)
    own = obtain(ca)
    cert = wait_for_certificate(ca.tls_port)
    wait_until("the file") { stored("*.pem").any? }
    ca.stop
    own.signal("TERM")
    own.wait_exit
    sleep [cert.not_after - Time.now + 2, 0].max
    again = obtain(ca)
    assert certificate(ca.tls_port), "it is served all the same"
    assert_logged(/WARNING: the certificate for #{NAME} EXPIRED on/, on: again)
    assert_logged(/the EXPIRED one is served; next attempt/, on: again)
    ca.start
    wait_until("a new one", within: PATIENCE) { certificate(ca.tls_port)&.then { |now| now.not_after > cert.not_after } }
  end

  it "orders anew what was lost or damaged, with the same account" do
    ca = pebble
    serials = %w[first lost broken other].map do |state|
      case state
      when "lost" then stored("*.pem").each { |file| File.delete(file) }
      when "broken" then stored("*.pem").each { |file| File.truncate(file, 300) }
      end
      own = obtain(ca, domains: state == "other" ? [NAME, "more.test"] : [NAME])
      serial = wait_for_certificate(ca.tls_port).serial
      assert_logged("the stored certificate for #{NAME} is broken", on: own) if state == "broken"
      wait_until("the files") { stored("#{NAME}.pem").any? }
      own.signal("TERM")
      own.wait_exit
      serial
    end
    assert_equal 4, serials.uniq.size, serials.inspect
    assert_equal 1, ca.accounts
  end

  it "makes the account again when the CA has forgotten it" do
    ca = pebble
    own = obtain(ca)
    wait_for_certificate(ca.tls_port)
    own.signal("TERM")
    own.wait_exit
    ca.stop
    # Pebble keeps everything in memory.
    ca.start
    stored("*.pem").each { |file| File.delete(file) }
    obtain(ca)
    wait_for_certificate(ca.tls_port)
    assert_equal 2, ca.accounts
  end

  it "uses a certificate that cannot be kept" do
    ca = pebble
    file = File.join(@certs, "file")
    File.write(file, "")
    own = obtain(ca, certs: File.join(file, "certs"))
    wait_for_certificate(ca.tls_port)
    assert_logged(/the certificate for #{NAME} is used but cannot be kept: .*file.*; it is tried again/, on: own)
  end

  it "orders once for two machines with one Redis, and both serve" do
    with_redis do |url|
      ca = pebble
      other = Pebble.free_ports(2)
      first = obtain(ca, "--acme-storage", url, "--acme-challenge", "http-01", certs: nil)
      second = obtain(ca, "--acme-storage", url, "--acme-challenge", "http-01", certs: nil, binds: ["tcp://127.0.0.1:#{other[0]}", "ssl://127.0.0.1:#{other[1]}"])
      serials = [ca.tls_port, other[1]].map { |port| wait_for_certificate(port).serial }
      assert_equal serials[0], serials[1]
      assert_equal [1, 1], [ca.issued, ca.accounts]
      assert_equal 1, (first.stderr + second.stderr).scan("obtained from").size
      assert_match(/Redis on 127/, entry(second)["storage"])
      ca.stop
      third = Pebble.free_ports(1).first
      obtain(ca, "--acme-storage", url, certs: nil, binds: ["ssl://127.0.0.1:#{third}"])
      assert_equal serials[0], wait_for_certificate(third).serial, "a machine that comes later needs no CA"
    end
  end

  it "answers tls-alpn-01 for the other machine that has ordered" do
    with_redis do |url|
      ca = pebble
      behind = Pebble.free_ports(1).first
      obtain(ca, "--acme-storage", url, certs: nil, binds: ["ssl://127.0.0.1:#{ca.tls_port}"])
      obtain(ca, "--acme-storage", url, certs: nil, binds: ["ssl://127.0.0.1:#{behind}"])
      assert_equal wait_for_certificate(ca.tls_port).serial, wait_for_certificate(behind).serial
      assert_equal 1, ca.issued
    end
  end

  it "binds an account of the CA's own" do
    ca = pebble(eab: true)
    own = obtain(ca)
    assert_logged(/no certificate: .*set acme\.eab_kid and acme\.eab_hmac/, on: own)
    own.signal("TERM")
    own.wait_exit
    obtain(ca, env: { "EAB_KID" => Pebble::EAB[:kid], "EAB_HMAC_KEY" => Pebble::EAB[:hmac] })
    wait_for_certificate(ca.tls_port)
  end

  it "obtains certificates on demand for names that are welcome" do
    ca = pebble
    asked = Queue.new
    ask = answering do |target|
      name = target[/domain=(.+)/, 1]
      asked << name
      "HTTP/1.1 #{name == 'shop.test' ? '200 OK' : '404 Not Found'}"
    end
    own = obtain(ca, "--acme-on-demand", "--acme-ask", ask, domains: [])
    # Several clients at once, one order.
    found = Array.new(3) { Thread.new { certificate(ca.tls_port, "shop.test") } }.map(&:value)
    assert_equal(["shop.test"] * 3, found.flat_map { |cert| names(cert) })
    assert_equal 1, ca.issued
    3.times { assert_nil certificate(ca.tls_port, "unwelcome.test") }
    assert_equal %w[shop.test unwelcome.test], Array.new(asked.size) { asked.pop }.uniq.sort
    assert_equal [["shop.test"], true], entry(own).values_at("names", "on_demand")
  end

  it "serves what was obtained on demand before a restart, without asking anybody" do
    ca = pebble
    ask = answering { "HTTP/1.1 200 OK" }
    own = obtain(ca, "--acme-on-demand", "--acme-ask", ask, domains: [])
    serial = certificate(ca.tls_port, "shop.test").serial
    wait_until("the file") { stored("shop.test.pem").any? }
    own.signal("TERM")
    own.wait_exit
    ca.stop
    obtain(ca, "--acme-on-demand", "--acme-ask", ask, domains: [])
    assert_equal serial, certificate(ca.tls_port, "shop.test")&.serial
  end

  it "renews when the CA says so, and orders without `replaces` when the CA does not know it" do
    ca = pebble
    seen = []
    # Pebble's directory with a window for each certificate: the first is over, the others are far away.
    directory = answering do |target, here|
      if target == "/dir"
        json(JSON.parse(ca.directory_text).merge("renewalInfo" => "#{here}/ari"))
      else
        seen << target unless seen.include?(target)
        from = Time.now + (seen.first == target ? -7200 : 864_000)
        json({ "suggestedWindow" => { "start" => from.utc.iso8601, "end" => (from + 3600).utc.iso8601 } })
      end
    end
    own = obtain(ca, directory: "#{directory}/dir")
    first = wait_for_certificate(ca.tls_port).serial
    wait_until("the renewal", within: PATIENCE) { certificate(ca.tls_port)&.then { |cert| cert.serial != first } }
    wait_until("the window of the new one") { seen.size == 2 }
    wait_until("its moment") { (9..11).cover?((Time.iso8601(entry(own)["next_order"]) - Time.now) / 86_400) }
    assert_equal 2, ca.issued
    refute_includes own.stderr, "no certificate:"
  end

  it "says what the CA says about too many requests, and waits as long as it says" do
    limited = answering { json({ "type" => "urn:ietf:params:acme:error:rateLimited", "detail" => "too many" }, "429 Too Many Requests", retry_after: 7200) }
    own = obtain(pebble(started: false), directory: "#{limited}/dir")
    assert_logged(/no certificate: #{NAME}: .*status 429: too many; .*next attempt in (119 min|2 h)/, on: own)
    assert_in_delta 7200, Time.iso8601(entry(own)["next_order"]) - Time.now, 300
  end

  it "does not start with options that cannot be used" do
    { ["--acme-ca", "/nonexistent.pem"] => %r{acme\.ca: /nonexistent\.pem}, ["--acme-storage", "http://h"] => /acme\.storage: the scheme "http" in the URL/,
      ["--acme-on-demand"] => /acme\.ask has to name a URL/, ["--domain", "*.a.test"] => /set acme\.dns_command/ }.each do |args, said|
      own = Server.new(binds: ["ssl://127.0.0.1:0"], args: ["--domain", NAME, *args], files: { "index.html" => "hello" }, exit_code: :any)
      @own_servers << own
      own.launch
      refute_equal 0, own.wait_exit
      assert_match said, own.stderr
    end
  end

  it "survives a CA that answers nonsense" do
    answers = ["HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/html\r\nContent-Length: 20\r\n\r\n<h1>Bad gateway</h1>",
               "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n[]", "nonsense\r\n\r\n", "",
               "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9999999\r\n\r\n#{'x' * 2_000_000}"]
    server = TCPServer.new("127.0.0.1", 0)
    thread = Thread.new do
      answers.cycle do |answer|
        client = server.accept
        client.readpartial(10_000)
        client.write(answer)
        client.close
      rescue SystemCallError, IOError
        client&.close
      end
    end
    ca = pebble(started: false)
    own = obtain(ca, directory: "http://127.0.0.1:#{server.local_address.ip_port}/dir")
    assert wait_until(within: PATIENCE) { own.stderr.scan("no certificate:").size >= answers.size }, own.stderr
    assert_logged(/answered with status 502 and not JSON but "<h1>Bad gateway<.h1>"; check --acme-directory/, on: own)
    assert_status 200, get("/", to: own, headers: { "Host" => NAME })
  ensure
    thread&.kill
    server&.close
  end

  it "ends at once while an order is under way" do
    ca = pebble
    slow = File.join(@certs, "slow")
    File.write(slow, "#!/bin/sh\nsleep 600\n")
    File.chmod(0o755, slow)
    own = obtain(ca, "--acme-dns-command", slow, domains: ["*.a.test"])
    wait_until("the command runs", within: PATIENCE) { own.processes.any? { |one| Processes.command(one.pid).include?(slow) } }
    took = elapsed do
      own.signal("TERM")
      own.wait_exit
    end
    assert_operator took, :<, 10
  end
end
