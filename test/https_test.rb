# frozen_string_literal: true

# `firebrick --https`: development certificates issued by the user's own authority, and `firebrick trust`. Every test has its
# own home directory; the system's store and other homes are never changed.

require_relative "support/case"
require "openssl"
require "support/browser"

class HttpsTest < Case
  parallel!

  APP = <<~RUBY
    run lambda { |env|
      [200, { "content-type" => "text/html" }, ["<title>seen</title>\#{env["rack.url_scheme"]} \#{env["HTTPS"]} \#{env["SERVER_PORT"]}"]]
    }
  RUBY

  def before_setup
    super
    firebrick_only
    @homes = []
  end

  def after_teardown
    super
    @homes.each { |home| FileUtils.remove_entry(home) }
  end

  def home
    File.realpath(Dir.mktmpdir("firebrick-home")).tap { |home| @homes << home }
  end

  def environment(home) = { "HOME" => home, "XDG_DATA_HOME" => nil, "XDG_STATE_HOME" => nil, "SUDO_USER" => nil }

  def serve(home, **options)
    start(app: APP, args: ["--https"], env: environment(home), **options)
  end

  def folder(home) = File.join(home, ".local/share/firebrick/local-authority")

  def authority(home) = File.join(folder(home), "authority.crt")

  # The name of the authority in lists of certificates.
  def name_of(home) = OpenSSL::X509::Certificate.new(File.read(authority(home))).subject.to_s.delete_prefix("/CN=")

  def mode(path) = format("%o", File.stat(path).mode & 0o777)

  # Runs curl; returns what it printed and its exit code.
  def curl(server, host, *options, trusting:)
    resolve = "#{host}:#{server.port}:127.0.0.1"
    out, status = Open3.capture2e("curl", "-sS", "--max-time", "20", "--cacert", trusting, "--resolve", resolve, *options, "https://#{host}:#{server.port}/")
    [out, status.exitstatus]
  end

  # The certificate of a verified connection.
  def handshake(server, name, trusting:)
    context = OpenSSL::SSL::SSLContext.new
    context.ca_file = trusting
    context.verify_mode = OpenSSL::SSL::VERIFY_PEER
    socket = TCPSocket.new("127.0.0.1", server.port)
    tls = OpenSSL::SSL::SSLSocket.new(socket, context)
    tls.hostname = name if name
    tls.connect
    tls.post_connection_check(name || "127.0.0.1")
    tls.peer_cert
  ensure
    socket&.close
  end

  def trust(home, *args, path: ENV.fetch("PATH"))
    out, err, status = Open3.capture3({ **environment(home), "PATH" => path }, Server.binary, "trust", *args, stdin_data: "")
    [out, err, status.exitstatus]
  end

  def certutil!
    skip "needs certutil (libnss3-tools)" unless system("which certutil > /dev/null 2>&1")
  end

  def listed(store)
    Open3.capture2e("certutil", "-L", "-d", "sql:#{store}").first
  end

  it "serves localhost and names below localhost and test, and says where" do
    dir = home
    server = serve(dir)
    assert_equal "https://localhost:#{server.port}", server.listeners.first
    assert_match(/after `firebrick trust`/, server.stdout)
    %w[localhost 127.0.0.1 app.localhost a.b.localhost shop.test Shop.Test].each do |host|
      out, code = curl(server, host, trusting: authority(dir))
      assert_equal [0, "<title>seen</title>https on #{server.port}"], [code, out], host
    end
  end

  it "sends neither HSTS nor Alt-Svc" do
    dir = home
    out, = curl(serve(dir), "localhost", "-D", "-", "-o", "/dev/null", trusting: authority(dir))
    assert_match(/\AHTTP\S+ 200/, out)
    refute_match(/strict-transport-security|alt-svc/i, out)
  end

  it "makes the authority once, for its user alone" do
    dir = home
    first = serve(dir)
    assert_logged(/made an authority .*#{Regexp.escape(authority(dir))}/, on: first)
    assert_equal %w[700 700 600 644],
                 [mode(File.dirname(folder(dir))), mode(folder(dir)), mode(File.join(folder(dir), "authority.key")), mode(authority(dir))]
    before = File.binread(authority(dir))
    first.finish
    second = serve(dir)
    assert_equal before, File.binread(authority(dir))
    refute_match(/made an authority/, second.stderr)
    assert_equal 0, curl(second, "localhost", trusting: authority(dir)).last
  end

  it "follows XDG_DATA_HOME" do
    dir = home
    server = start(app: APP, args: ["--https"], env: environment(dir).merge("XDG_DATA_HOME" => File.join(dir, "data")))
    assert_path_exists File.join(dir, "data/firebrick/local-authority/authority.key")
    assert_equal 0, curl(server, "localhost", trusting: File.join(dir, "data/firebrick/local-authority/authority.crt")).last
  end

  it "gives each name a certificate that every client verifies" do
    dir = home
    server = serve(dir)
    plain = handshake(server, nil, trusting: authority(dir))
    assert_match(/DNS:localhost, IP Address:127.0.0.1, IP Address:0:0:0:0:0:0:0:1/, plain.extensions.find { |one| one.oid == "subjectAltName" }.value)
    shop = handshake(server, "shop.test", trusting: authority(dir))
    assert_equal "DNS:shop.test", shop.extensions.find { |one| one.oid == "subjectAltName" }.value
    assert_operator shop.not_after - shop.not_before, :<=, 397 * 86_400
    out, = Open3.capture2e("openssl", "s_client", "-connect", "127.0.0.1:#{server.port}", "-servername", "shop.test", "-CAfile", authority(dir),
                           "-verify_hostname", "shop.test", "-verify_return_error", "-brief", stdin_data: "")
    assert_match(/Verification: OK/, out)
  end

  it "limits the authority to this machine" do
    dir = home
    serve(dir)
    text, = Open3.capture2e("openssl", "x509", "-in", authority(dir), "-noout", "-text")
    assert_match(%r{Name Constraints: critical\s+Permitted:\s+DNS:localhost\s+DNS:test\s+IP:127\.0\.0\.0/255\.0\.0\.0\s+IP:0:0:0:0:0:0:0:1}, text)
    assert_match(/CA:TRUE, pathlen:0/, text)
    forged = File.join(dir, "forged.pem")
    forge(File.read(File.join(folder(dir), "authority.key")), "example.com", forged)
    out, = Open3.capture2e("openssl", "verify", "-CAfile", authority(dir), forged)
    assert_match(/permitted subtree violation/, out)
  end

  # Signs a certificate that the authority is not allowed to sign.
  def forge(authority, name, path)
    issuer = OpenSSL::X509::Certificate.new(authority[/-----BEGIN CERTIFICATE.*/m])
    key = OpenSSL::PKey::EC.generate("prime256v1")
    cert = OpenSSL::X509::Certificate.new
    cert.version = 2
    cert.serial = 1
    cert.subject = OpenSSL::X509::Name.parse("/CN=#{name}")
    cert.issuer = issuer.subject
    cert.public_key = key
    cert.not_before = Time.now - 60
    cert.not_after = Time.now + 3600
    factory = OpenSSL::X509::ExtensionFactory.new(issuer, cert)
    cert.add_extension(factory.create_extension("subjectAltName", "DNS:#{name}"))
    cert.sign(OpenSSL::PKey.read(authority), OpenSSL::Digest.new("SHA256"))
    File.write(path, cert.to_pem)
  end

  it "refuses other names with a sentence" do
    dir = home
    server = serve(dir)
    out, code = curl(server, "example.com", trusting: authority(dir))
    refute_equal 0, code, out
    assert_logged(/https: .*"example\.com".*localhost, \*\.localhost, \*\.test/, on: server)
    assert_equal 0, curl(server, "localhost", trusting: authority(dir)).last
  end

  it "stops at an authority that cannot be used, and keeps the file" do
    dir = home
    FileUtils.mkdir_p(folder(dir))
    key = File.join(folder(dir), "authority.key")
    File.write(key, "nothing")
    server = Server.new(app: APP, args: ["--https"], env: environment(dir), exit_code: 1)
    @own_servers << server
    server.launch
    assert_equal 1, server.wait_exit
    assert_match(/authority\.key: has no certificate.*remove the file/, server.stderr)
    assert_equal "nothing", File.read(key)
  end

  it "is described by check, which makes nothing" do
    dir = home
    server = Server.new(app: APP, env: environment(dir))
    out, err, code = server.command_line("check", "--https", server.dir)
    assert_equal 0, code, err
    assert_match(%r{^  listen +ssl://\[::\]:9292$}, out)
    assert_match(/for localhost, \*\.localhost, \*\.test, .*authority of development/, out)
    assert_empty Dir.children(dir)
  ensure
    FileUtils.remove_entry(server.base)
  end

  it "leaves tcp:// alone beside ssl://, and can be set in the file" do
    dir = home
    server = start(app: APP, settings: { "https" => true }, env: environment(dir), binds: ["tcp://127.0.0.1:0", "ssl://127.0.0.1:0"])
    assert_equal(%w[http https], server.listeners.map { |address| address[/\A\w+/] }.sort)
  end

  it "shows what trust would run, and changes nothing" do
    dir = home
    out, err, code = trust(dir, "--dry-run")
    assert_match(/#{Regexp.escape(authority(dir))}/, out)
    assert_match(/system store/, out)
    assert_match(%r{Chromium \(~/\.local/share/pki/nssdb\)}, out)
    assert_includes [0, 1], code, err
    assert_equal %w[.local], Dir.children(dir)
    assert_equal %w[firebrick], Dir.children(File.join(dir, ".local/share"))
  end

  it "does not trust anything without a yes" do
    certutil!
    dir = home
    out, err, code = trust(dir, "--store", "chromium")
    assert_equal 2, code
    assert_match(/certutil -A/, out)
    assert_match(/standard input is not a terminal; use --yes/, err)
    assert_empty Dir[File.join(dir, ".local/share/pki/*")]
  end

  it "installs the authority into the stores of Chromium and Firefox, and removes it" do
    certutil!
    dir = home
    profile = File.join(dir, ".mozilla/firefox/x.default")
    FileUtils.mkdir_p(profile)
    assert system("certutil", "-N", "-d", "sql:#{profile}", "--empty-password")
    stores = [File.join(dir, ".pki/nssdb"), File.join(dir, ".local/share/pki/nssdb"), profile]
    args = ["--store", "chromium", "--store", "firefox", "--yes"]
    out, err, code = trust(dir, *args)
    assert_equal 0, code, out + err
    stores.each { |store| assert_match(/^#{name_of(dir)}\s+C,,/, listed(store)) }
    again, _, code = trust(dir, *args)
    assert_equal 0, code
    assert_equal 3, again.scan("trusts it already").size, again
    _, err, code = trust(dir, "--undo", *args)
    assert_equal 0, code, err
    stores.each { |store| refute_match(/Firebrick/, listed(store)) }
  end

  it "says what is missing and goes on" do
    dir = home
    out, _, code = trust(dir, "--store", "chromium", "--yes", path: "/nowhere")
    assert_equal 1, code
    assert_match(/certutil is not installed.*libnss3-tools/, out)
    _, err, code = trust(dir, "--store", "safari")
    assert_equal 2, code
    assert_match(/expected one of system, chromium, firefox/, err)
  end

  it "is not for domains of the internet" do
    _, err, code = Server.new(app: APP).command_line("check", "--https", "--domain", "a.example")
    assert_equal 1, code
    assert_match(/https.*it is for development, and domains are for the internet/, err)
  end

  it "opens in a real Chromium without a certificate error after trust" do
    certutil!
    skip "needs Chromium" unless Browser.installed?
    server = nil
    browser = Browser.new do |dir|
      server = serve(dir)
      out, err, code = trust(dir, "--store", "chromium", "--yes")
      assert_equal 0, code, out + err
    end
    page = browser.page
    %w[localhost app.localhost].each do |host|
      response = page.goto("https://#{host}:#{server.port}/")
      assert_equal 200, response.status
      assert_equal ["seen", true], page.evaluate("[document.title, window.isSecureContext]")
    end
    refused = assert_raises(Browser::Refusal) { Browser.new.then { |other| visit_and_close(other, "https://localhost:#{server.port}/") } }
    assert_match(/ERR_CERT_AUTHORITY_INVALID/, refused.message)
  ensure
    browser&.close
  end

  def visit_and_close(browser, url)
    browser.page.goto(url)
  ensure
    browser.close
  end
end
