# frozen_string_literal: true

# `firebrick bench --http 3` against Firebrick, and its message when there is no HTTP/3.

require "json"
require "open3"
require "socket"
require "support/tls_case"

class BenchHttp3Case < TlsCase
  APP = <<~'RUBY'
    run lambda { |env|
      body = env["rack.input"]&.read.to_s
      case env["PATH_INFO"]
      when "/echo" then [200, {}, ["#{env['SERVER_PROTOCOL']} #{env['REQUEST_METHOD']} #{env['HTTP_X_A']} #{body.bytesize}"]]
      when "/cookie" then [200, { "set-cookie" => "seen=1" }, [env["HTTP_COOKIE"].to_s]]
      when "/big" then [200, {}, ["b" * 3_000_000]]
      when "/missing" then [404, {}, ["no"]]
      else [200, {}, ["hello"]]
      end
    }
  RUBY

  def bench(*args)
    out, err, status = Open3.capture3(Server.ruby_files, "timeout", "60", Server.binary, "bench", *args.map(&:to_s), chdir: Dir.tmpdir)
    [out, err, status.exitstatus]
  end

  def result(*args)
    out, err, code = bench(*args, "--format", "json")
    assert_equal 0, code, err
    JSON.parse(out)
  end

  def own
    @own ||= secure(app: APP, args: ["--log-requests"])
  end

  def url(path = "/") = "https://127.0.0.1:#{own.port}#{path}"
end

# Quiet, because it measures the machine's time.
class BenchHttp3RateTest < BenchHttp3Case
  quiet!

  it "sends at a rate" do
    found = result(url, "-k", "--http", 3, "--rate", "200/s", "-d", "1s")
    assert_in_delta 200, found.dig("summary", "requests"), 20
  end
end

class BenchHttp3Test < BenchHttp3Case
  it "reaches a server at :: by both families" do
    begin
      TCPServer.new("::1", 0).close
    rescue SystemCallError
      skip "no IPv6"
    end
    app = 'run ->(env) { [200, {}, [env["REMOTE_ADDR"]]] }'
    own = start(app: app, files: pair("own", "localhost", "127.0.0.1"), binds: ["ssl://[::]:0?cert=own.pem&key=own.key"], args: %w[--access-log - --front-threads 2])
    %w[127.0.0.1 [::1]].each do |host|
      found = result("https://#{host}:#{own.port}/", "-k", "--http", 3, "-n", 3, "-c", 1)
      assert_equal 3, found.dig("summary", "requests"), found["summary"].inspect
    end
    assert wait_until("lines") { own.stdout.lines.grep(%r{HTTP/3}).map { |line| line[/^\S+/] }.tally == { "127.0.0.1" => 3, "::1" => 3 } }, own.stdout
  end

  parallel!

  it "carries many requests on few connections, and shows handshakes" do
    found = result(url, "-k", "--http", 3, "-c", 4, "--streams", 8, "-n", 2000)
    assert_equal [2000, 4], [found.dig("summary", "requests"), found.dig("outcome", "connections")]
    assert_equal ["HTTP/3", 8], found["plan"].values_at("protocol", "depth")
    server = found.dig("outcome", "server")
    assert_equal "HTTP/3", server["protocol"]
    assert_match(/\ATLSv1\.3 TLS13_AES_/, server["tls"])
    assert_equal 10_000, found.dig("outcome", "bytes", "bodies")
    assert_operator found.dig("outcome", "bytes", "received"), :>, 10_000
    handshakes = found.dig("summary", "handshakes")
    assert_equal [4, 4, 0], handshakes.values_at("count", "full", "resumed")
    assert_operator handshakes.dig("time_ms", "p50"), :>, 0
    assert_equal 2000, own.stdout.scan(%r{"GET / HTTP/3" 200}).size
    assert wait_until { own.stats.dig("connections", "open").to_i.zero? }, "its connections are closed when it ends"
  end

  it "says what it did" do
    out, err, code = bench(url, "-k", "--http", 3, "-c", 2, "-n", 20)
    assert_equal [0, ""], [code, err]
    assert_match(%r{2 users.*HTTP/3}, out)
    assert_match(/handshakes/, out)
  end

  it "sends methods, fields, bodies and cookies, and checks what comes back" do
    body = "x" * 300_000
    Dir.mktmpdir do |dir|
      File.write("#{dir}/body", body)
      result(url("/echo"), "-k", "--http", 3, "-c", 2, "-n", 10, "-X", "PUT", "-H", "X-A: b", "--body-file", "#{dir}/body",
             "--expect-body", "\\AHTTP/3 PUT b 300000\\z")
    end
    result(url("/cookie"), "-k", "--http", 3, "-c", 1, "-r", 3, "--cookies", "--expect-body", "\\A(seen=1)?\\z")
    result(url("/big"), "-k", "--http", 3, "-c", 2, "-n", 6, "--expect-length", "3000000")
    found = result(url, url("/missing"), "-k", "--http", 3, "-c", 1, "-n", 4)
    assert_equal 2, found.dig("outcome", "errors", "status")
  end

  it "trusts what it is told to, by the rules of HTTPS" do
    pem = pair("own", "localhost", "127.0.0.1")
    server = secure(app: APP, pem:)
    Dir.mktmpdir do |dir|
      File.write("#{dir}/ca.pem", pem.fetch("own.pem"))
      found = result("https://localhost:#{server.port}/", "--connect-to", "127.0.0.1:#{server.port}", "--ca", "#{dir}/ca.pem", "--http", 3, "-c", 1, "-n", 3)
      assert_equal 3, found.dig("summary", "requests")
    end
    _, err, code = bench("https://127.0.0.1:#{server.port}/", "--http", 3, "-c", 1, "-n", 3)
    assert_equal 1, code
    assert_match(%r{TLS with https://127\.0\.0\.1:#{server.port} failed: .*certificate.*; name the file of a certificate to trust}, err)
  end

  it "says that nothing listens on the UDP port" do
    server = secure(app: APP, args: ["--no-http3"])
    _, err, code = bench("https://127.0.0.1:#{server.port}/", "-k", "--http", 3, "-c", 2, "-n", 3, "--connect-timeout", "20s")
    assert_equal 1, code
    assert_match(%r{cannot connect to https://127\.0\.0\.1:#{server.port}: nothing listens on the UDP port; is HTTP/3 on}, err)
  end

  it "says that a server is silent" do
    silent = UDPSocket.new
    silent.bind("127.0.0.1", 0)
    _, err, code = bench("https://127.0.0.1:#{silent.addr[1]}/", "-k", "--http", 3, "-c", 1, "-n", 3, "--connect-timeout", "300ms")
    assert_equal 1, code
    assert_match(/cannot connect to https:.*: no response over UDP/, err)
  ensure
    silent&.close
  end

  it "refuses what HTTP/3 cannot be" do
    [[["http://127.0.0.1:1/"], /always encrypted: use https:/],
     [["unix:/run/a.sock:/"], /needs UDP/],
     [["https://127.0.0.1:1/", "--pipeline", 2], %r{--pipeline cannot be used with HTTP/3: use --streams}],
     [["https://127.0.0.1:1/", "--no-keep-alive"], %r{--no-keep-alive cannot be used with HTTP/3}]].each do |args, expected|
      _, err, code = bench(*args, "--http", 3)
      assert_equal 2, code
      assert_match expected, err
    end
  end
end
