# frozen_string_literal: true

# Possible responses of a CA, and the server's reactions: profiles, renewal windows (ARI), `replaces`, external accounts, staging,
# rate limits, invalid responses at every step of an order.

require "support/acme_case"

class AcmeCaTest < AcmeCase
  parallel! slow: 30

  SHORTLIVED = 6 * 86_400

  def profiles
    { "classic" => 90 * 86_400, "shortlived" => SHORTLIVED }
  end

  def lifetime(certificate)
    certificate.not_after - certificate.not_before
  end

  it "obtains short-lived certificates, for an IP address, too, and plans their renewal as the CA says" do
    ca = new_pebble(profiles:)
    own = obtain(ca, "--acme-profile", "shortlived", domains: ["127.0.0.1", NAME])
    cert = wait_for_certificate(ca.tls_port)
    assert_in_delta SHORTLIVED, lifetime(cert), 60
    assert_equal ["127.0.0.1", NAME], names(cert).sort
    assert_equal cert.serial, certificate(ca.tls_port, nil).serial, "for clients that name no host"
    # Pebble's window: a day before and after two thirds of the lifetime.
    days = -> { (Time.iso8601(entry(own)["next_order"]) - Time.now) / 86_400 }
    assert(wait_until { (2.99..5.01).cover?(days.call) }, "due in #{days.call} days")
  end

  it "says what to do about a profile that the CA does not have" do
    own = obtain(new_pebble(profiles:), "--acme-profile", "short")
    assert_logged(/no certificate: #{NAME}: .*short.*check acme\.profile/, on: own)
  end

  it "renews a short-lived certificate in the CA's window, with nobody asking" do
    ca = new_pebble(profiles:)
    own = obtain(ca, "--acme-profile", "shortlived")
    first = wait_for_certificate(ca.tls_port)
    wait_until("the file") { stored("*.pem").any? }
    stop(own)
    from = Time.now + 8
    ca.suggest_window(first, from, from + 2)
    again = obtain(ca, "--acme-profile", "shortlived")
    assert_equal first.serial, certificate(ca.tls_port).serial
    second = wait_for_another(ca.tls_port, first)
    assert_operator Time.now, :>=, Time.at(from.to_i), "not before the window"
    assert_in_delta SHORTLIVED, lifetime(second), 60, "the profile stays"
    assert_equal [2, 1], [ca.issued, ca.accounts]
    assert_operator Time.iso8601(entry(again)["next_order"]), :>, Time.now + 86_400, "and has a window of its own"
    refute_includes again.stderr, "no certificate:"
  end

  it "orders anew without `replaces` when the CA refuses that" do
    ca = new_pebble
    between = proxy(ca) { nil }
    serve = -> { obtain(ca, directory: between.directory) }
    own = serve.call
    first = wait_for_certificate(ca.tls_port)
    wait_until("the file") { stored("*.pem").any? }
    file = stored("*.pem").first
    kept = File.read(file)
    stop(own)
    ca.suggest_window(first, Time.now - 7200, Time.now - 3600)
    own = serve.call
    second = wait_for_another(ca.tls_port, first)
    wait_until("the file") { File.read(file) != kept }
    stop(own)
    assert_equal 2, between.count(:new_order)
    # A backup is restored: that certificate has been replaced already.
    File.write(file, kept)
    own = serve.call
    third = wait_for_another(ca.tls_port, first)
    refute_equal second.serial, third.serial
    assert_equal [4, 3], [between.count(:new_order), ca.issued], "the third order was refused, and placed again"
    refute_includes own.stderr, "no certificate:"
  end

  it "says what is wrong about an external account" do
    ca = pebble(eab: true)
    { "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ13X" => /no certificate: #{NAME}: the account: the CA says: .*acme\.eab_hmac/,
      "not-base64!" => /acme\.eab_hmac is not base64url: copy it as the CA shows it/ }.each do |key, said|
      own = obtain(ca, env: { "EAB_KID" => Pebble::EAB[:kid], "EAB_HMAC_KEY" => key })
      assert_logged(said, on: own)
      refute_includes own.stderr, key, "a key is no part of a message"
      stop(own)
    end
    unknown = obtain(ca, env: { "EAB_KID" => "nobody", "EAB_HMAC_KEY" => Pebble::EAB[:hmac] })
    assert_logged(/no certificate: #{NAME}: the account: the CA says: .*acme\.eab_kid/, on: unknown)
  end

  # A CA and its staging directory, both of which cannot reach any name, and a server that uses them.
  def with_staging(*args)
    production = pebble
    staging = pebble(ports: production)
    both = File.join(@certs, "both.pem")
    File.write(both, File.read(production.ca_file) + File.read(staging.ca_file))
    [production, staging].each { |ca| ca.resolve_to("127.0.0.9") }
    own = obtain(production, "--acme-challenge", "http-01", "--acme-staging", staging.directory, *args, ca_file: both)
    [production, staging, own]
  end

  it "goes to the staging directory first after a refusal" do
    production, staging, own = with_staging
    assert_logged(/no certificate: #{NAME} .*next attempt in \d+ s, at the CA's staging directory first/, on: own)
    wait_until("an order at the staging directory", within: PATIENCE) { staging.orders == 1 }
    assert_equal 1, production.orders, "no limit of the real one is used up"
    [staging, production].each { |ca| ca.resolve_to("127.0.0.1") }
    cert = wait_for_certificate(production.tls_port)
    assert_logged("the order succeeds at the CA's staging directory; now the real one", on: own)
    assert_equal [2, 1, 1], [production.orders, production.issued, staging.issued]
    store = OpenSSL::X509::Store.new.tap { |all| all.add_cert(production.root) }
    assert store.verify(cert, handshake(production.tls_port, NAME).peer_cert_chain.drop(1)), "the real one's is served"
    keys = stored("account.json").map { |file| JSON.parse(File.read(file))["thumbprint"] }
    assert_equal [2, 1], [keys.size, keys.uniq.size], "two accounts with one key"
  end

  it "asks the real directory when staging is away" do
    production, staging, own = with_staging
    assert_logged(/at the CA's staging directory first/, on: own)
    staging.stop
    production.resolve_to("127.0.0.1")
    wait_for_certificate(production.tls_port)
    assert_equal [0, 1], [staging.issued, production.issued]
  end

  it "waits as long as the CA says" do
    ca = pebble
    limit = json({ type: "urn:ietf:params:acme:error:rateLimited", detail: "too many orders", status: 429 }, "429 Too Many Requests", retry_after: 5)
    between = proxy(ca) { |kind| limit if kind == :new_order && between.count(:new_order) == 1 }
    own = obtain(ca, directory: between.directory)
    wait_for_certificate(ca.tls_port)
    first, second = between.moments(:new_order)
    assert_operator second - first, :>=, 5
    assert_logged(/no certificate: #{NAME}: the CA says: too many orders; nothing has to be done: the order is repeated when the CA allows it/, on: own)
  end

  it "obtains a certificate from a CA that refuses nonces" do
    ca = pebble(env: { "PEBBLE_WFE_NONCEREJECT" => "25" })
    obtain(ca)
    wait_for_certificate(ca.tls_port)
  end

  CaProxy.steps.each do |step|
    it "survives nonsense at this step of an order: #{step}" do
      ca = pebble
      answers = [http("502 Bad Gateway", "text/html", "<h1>Bad gateway</h1>"),
                 http("200 OK", "application/json", %({"status":)), ""]
      between = proxy(ca) { |kind| answers.shift if kind == step }
      own = obtain(ca, directory: between.directory)
      wait_for_certificate(ca.tls_port)
      assert_empty answers
      said = own.stderr.lines.grep(/no certificate: #{NAME}/)
      # A nonce is requested again at once, and a challenge whose response was lost still succeeds.
      refute_empty said unless step == :order
      said.each { |line| assert_match(/there is no certificate yet; next attempt in \d+ s/, line) }
      assert_status 308, get("/", to: own, headers: { "Host" => NAME })
    end
  end

  it "survives a Retry-After that no clock can hold" do
    ca = pebble
    moods = { directory: "18446744073709551615", order: "18446744073709551615", challenge: "-1", window: "99999999999999999999" }
    between = proxy(ca) do |kind|
      next unless moods.key?(kind) && moods[kind]

      http("503 Service Unavailable", "application/json", "{}", "Retry-After: #{moods.delete(kind)}")
    end
    own = obtain(ca, directory: between.directory)
    assert_logged(/no certificate: #{NAME}: .*next attempt in (7 d|6 d 23 h)/, on: own)
    assert_status 200, get("/", to: own, headers: { "Host" => NAME })
  end

  it "keeps the certificate that it has when the CA issues one that cannot be used" do
    ca = pebble
    other, = ca.certificate(subject_alt_name: "DNS:other.test")
    between = proxy(ca) { |kind| http("200 OK", "application/pem-certificate-chain", other.to_pem) if kind == :certificate && between.count(:certificate) == 1 }
    own = obtain(ca, directory: between.directory)
    wait_for_certificate(ca.tls_port)
    assert_logged(/no certificate: #{NAME}: the CA has issued a certificate that cannot be used: the private key does not belong/, on: own)
    assert_equal [NAME], names(certificate(ca.tls_port))
  end

  it "does not wait for a CA that says nothing, neither with the site nor at the end" do
    ca = pebble
    between = proxy(ca) { |kind| sleep 600 if kind == :new_order }
    own = obtain(ca, directory: between.directory)
    wait_until("the order", within: PATIENCE) { between.count(:new_order) == 1 }
    assert_status 200, get("/", to: own, headers: { "Host" => NAME })
    assert(wait_until(within: PATIENCE) { own.stderr.include?("did not respond within 30 s") }, own.stderr)
    assert_status 200, get("/", to: own, headers: { "Host" => NAME })
    assert_operator elapsed { stop(own) }, :<, 10
  end
end
