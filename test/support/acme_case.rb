# frozen_string_literal: true

# The base of tests that obtain certificates from a real CA (Pebble).

require "support/ca_proxy"
require "support/case"
require "support/pebble"
require "support/redis_server"
require "time"

class AcmeCase < Case
  include RedisServer

  NAME = "www.a.test"
  # Slow machines need time for an order.
  PATIENCE = 60

  def setup
    firebrick_only
    skip "Pebble is not installed (script/setup test)" unless Pebble.installed?
    @pebbles = []
    @proxies = []
    @certs = Dir.mktmpdir("certs")
  end

  def teardown
    # Servers first: they would log errors about a CA that is gone.
    @own_servers.each { |server| server.signal("TERM") if server.running? }
    @own_servers.each { |server| wait_until(within: 10) { !server.running? } }
    @answering&.each(&:call)
    @proxies&.each(&:finish)
    @pebbles&.each(&:finish)
    FileUtils.remove_entry(@certs) if @certs
  end

  def pebble(started: true, **options)
    ca = Pebble.new(**options)
    @pebbles << ca
    started ? ca.start : ca
  end

  # Makes a CA with scripted behaviour; see CaProxy.
  def proxy(pebble, &meddle)
    CaProxy.new(pebble, &meddle).tap { |one| @proxies << one }
  end

  # Makes a CA that supports profiles and renewal windows.
  def new_pebble(profiles: { "default" => 7_776_000 }, **options)
    skip "Pebble here is too old for profiles and renewal windows (script/setup test)" unless Pebble.new?
    pebble(profiles:, **options)
  end

  # Starts a server on the CA's ports that obtains a certificate for +domains+.
  def obtain(pebble, *args, domains: [NAME], binds: nil, certs: @certs, env: {}, directory: pebble.directory, ca_file: pebble.ca_file)
    binds ||= ["tcp://127.0.0.1:#{pebble.http_port}", "ssl://127.0.0.1:#{pebble.tls_port}"]
    words = domains.flat_map { |domain| ["--domain", domain] }
    words += ["--acme-directory", directory, "--acme-ca", ca_file, "--acme-retry", "1s"]
    words += ["--certs-dir", certs] if certs
    start(binds:, args: words + args, env: { "XDG_STATE_HOME" => File.join(@certs, "state") }.merge(env),
          files: { "index.html" => "hello" })
  end

  # Returns the server's certificate for +name+; nil when the handshake fails.
  def certificate(port, name = NAME)
    handshake(port, name)&.peer_cert
  end

  # Opens a connection for +name+; it is closed after the test.
  def handshake(port, name)
    socket = Socket.tcp("127.0.0.1", port, connect_timeout: 5)
    context = OpenSSL::SSL::SSLContext.new
    context.verify_mode = OpenSSL::SSL::VERIFY_NONE
    tls = OpenSSL::SSL::SSLSocket.new(socket, context)
    tls.hostname = name if name
    tls.sync_close = true
    tls.connect
    @connections << tls
    tls
  rescue OpenSSL::SSL::SSLError, Errno::ECONNRESET
    socket.close
    nil
  end

  def wait_for_certificate(port, name = NAME)
    wait_until("a certificate for #{name}", within: PATIENCE) { certificate(port, name) }
  end

  def names(certificate)
    certificate.extensions.find { |one| one.oid == "subjectAltName" }.value.split(", ").map { |name| name.split(":", 2).last }
  end

  # Returns the response to an https request.
  def get_https(port, name = NAME, path = "/")
    tls = handshake(port, name)
    tls.write("GET #{path} HTTP/1.1\r\nHost: #{name}\r\n\r\n")
    text = +""
    wait_until("a response") { text << tls.readpartial(10_000) and text.include?("hello") }
    text
  end

  # Starts an HTTP server on this machine; the block returns its response for a target and the server's own URL.
  def answering
    server = TCPServer.new("127.0.0.1", 0)
    url = "http://127.0.0.1:#{server.local_address.ip_port}"
    thread = Thread.new do
      loop do
        client = server.accept
        answer = yield client.gets.split[1], url
        answer += "\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" unless answer.include?("\r\n\r\n")
        nil until client.gets.strip.empty?
        client.write(answer)
        client.close
      end
    end
    (@answering ||= []) << -> { thread.kill && server.close }
    url
  end

  def json(body, status = "200 OK", retry_after: 600)
    http(status, "application/json", JSON.generate(body), "Retry-After: #{retry_after}")
  end

  # Formats an HTTP response that ends the connection.
  def http(status, type, body, *fields)
    lines = ["HTTP/1.1 #{status}", "Content-Type: #{type}", "Content-Length: #{body.bytesize}", "Connection: close", *fields]
    "#{lines.join("\r\n")}\r\n\r\n#{body}"
  end

  def stop(server)
    server.signal("TERM")
    server.wait_exit
  end

  # Ends a server abruptly, as a power cut does.
  def kill(server)
    server.signal("KILL")
    server.wait_exit
    @own_servers.delete(server)
    FileUtils.remove_entry(server.base)
  end

  # Waits until the served certificate differs from +before+, and returns it.
  def wait_for_another(port, before, name = NAME, within: PATIENCE)
    wait_until("another certificate", within:) { certificate(port, name)&.then { |cert| cert if cert.serial != before.serial } }
  end

  def stored(pattern)
    Dir[File.join(@certs, "*", pattern)]
  end

  def entry(server)
    server.stats.fetch("acme").first
  end
end
