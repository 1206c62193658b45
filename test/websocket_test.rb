# frozen_string_literal: true

# WebSockets over HTTP/1.1, HTTP/2 (RFC 8441) and HTTP/3 (RFC 9220): the app sees the same upgrade in all of them, whichever way of
# Rack it takes the connection over; `rack.protocol` of Rack 3.1; limits, logs, and the end of the server.

require "json"
require "net/http"
require "support/backend"
require "support/http2_case"
require "support/site_server"
require "support/tls_case"
require "support/upgrading"
require "support/web_socket"

class WebsocketTest < TlsCase
  parallel!

  include Upgrading

  RESTART = "\x88\x02\x03\xF4".b
  APP = <<~'RUBY'
    require "digest/sha1"
    accept = lambda do |env|
      [Digest::SHA1.digest("#{env['HTTP_SEC_WEBSOCKET_KEY']}258EAFA5-E914-47DA-95CA-C5AB0DC85B11")].pack("m0")
    end
    seen = lambda do |env|
      JSON.generate(%w[REQUEST_METHOD HTTP_UPGRADE HTTP_CONNECTION HTTP_SEC_WEBSOCKET_VERSION SERVER_PROTOCOL rack.hijack? rack.protocol
                       HTTP_HOST PATH_INFO QUERY_STRING].to_h { |key| [key, env[key]] }.merge("key" => env["HTTP_SEC_WEBSOCKET_KEY"].to_s.unpack1("m").bytesize))
    end
    require "json"
    # Says what it has seen, then repeats what comes, in upper case; the client's end is answered with "(end)".
    talk = lambda do |env, io|
      text = seen.call(env)
      io.write([text.bytesize].pack("N") + text)
      while (part = (io.readpartial(10_000) rescue nil))
        break if part == "close"
        raise "on purpose" if part == "raise"
        io.write(part.upcase)
      end
      io.write("(end)") unless part
    ensure
      io.close
    end
    run(lambda do |env|
      switch = { "connection" => "Upgrade", "upgrade" => "websocket", "sec-websocket-accept" => accept.(env), "x-own" => "yes" }
      case env["PATH_INFO"]
      when "/full", "/full-wrong", "/full-403", "/full-nothing"
        io = env["rack.hijack"].call
        switch["sec-websocket-accept"] = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" if env["PATH_INFO"] == "/full-wrong"
        case env["PATH_INFO"]
        when "/full-403" then io.write("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno"); io.close
        when "/full-nothing" then io.close
        else
          Thread.new do
            io.write("HTTP/1.1 101 Switching Protocols\r\n#{switch.map { |field| field.join(': ') + "\r\n" }.join}\r\n")
            talk.(env, io)
          end
        end
        [-1, {}, []]
      when "/partial" then [101, switch.merge("rack.hijack" => ->(io) { Thread.new { talk.(env, io) } }), []]
      when "/stream" then [101, switch, ->(io) { Thread.new { talk.(env, io) } }]
      when "/protocol" then [200, { "rack.protocol" => "websocket", "x-own" => "yes" }, ->(io) { talk.(env, io) }]
      when "/protocol-101" then [101, { "rack.protocol" => "WebSocket", "x-own" => "yes" }, ->(io) { talk.(env, io) }]
      when "/protocol-hijack" then [200, { "rack.protocol" => "websocket", "x-own" => "yes", "rack.hijack" => ->(io) { talk.(env, io) } }, []]
      when "/protocol-other" then [200, { "rack.protocol" => "chat" }, ->(io) { talk.(env, io) }]
      when "/protocol-each" then [200, { "rack.protocol" => "websocket" }, ["no stream"]]
      when "/protocol-403" then [403, { "rack.protocol" => "websocket", "content-type" => "text/plain" }, ["no"]]
      when "/raise" then raise "on purpose"
      when "/403" then [403, { "content-type" => "text/plain" }, ["no"]]
      when "/gate" then File.write("../entered", ""); sleep 0.01 until File.exist?("../go"); [200, {}, ["opened"]]
      when "/count"
        [101, switch.merge("rack.hijack" => lambda do |io|
          Thread.new do
            sum = 0
            while (part = (io.readpartial(65_536) rescue nil))
              sum += part.bytesize
            end
            io.write(sum.to_s)
            io.close
          end
        end), []]
      when "/framed"
        [101, switch.merge("rack.hijack" => lambda do |io|
          Thread.new { io.write("\x81\x02ok") while (io.readpartial(10_000) rescue nil) }
        end), []]
      when "/hold" then [101, switch.merge("rack.hijack" => ->(io) { io.write("\x81\x02hi"); Thread.new { sleep } }), []]
      else [200, { "content-type" => "application/json" }, [seen.call(env)]]
      end
    end)
  RUBY
  WAYS = %w[full partial stream protocol protocol-101 protocol-hijack].freeze

  def setup
    super
    @sockets = []
  end

  def teardown
    @sockets.each(&:close)
    super
  end

  def everything(app: APP, **options)
    files = pair("own", "localhost", "127.0.0.1").merge(options.delete(:files) || {})
    start(app:, files:, binds: WebSocket::BINDS, threads: "1:30", **options)
  end

  def open_socket(version, own, path, **options)
    skip "needs Go" if version == "HTTP/3" && !QuicGo.client
    WebSocket::KINDS.fetch(version).new(own, path, **options).tap { |socket| @sockets << socket }
  end

  # The request as the app has seen it.
  def seen(socket)
    JSON.parse(socket.read_exactly(socket.read_exactly(4).unpack1("N")))
  end

  def assert_talks(socket)
    5.times do |i|
      socket.write("frame #{i}")
      assert_equal "FRAME #{i}", socket.read_exactly(7)
    end
  end

  # Asserts that the app answers a message, in a frame.
  def assert_answers(socket)
    socket.write(WebSocket.frame("x"))
    assert_equal "\x81\x02ok".b, socket.read_exactly(4)
  end

  def assert_way(version, own, way)
    socket = open_socket(version, own, "/#{way}?q=1")
    assert_predicate socket, :accepted?, "#{way}: #{socket.status} #{socket.fields}"
    assert_equal "yes", socket.fields["x-own"]
    left_out = version == "HTTP/1.1" ? [] : %w[connection upgrade sec-websocket-accept rack.protocol content-length transfer-encoding]
    assert_empty socket.fields.keys & left_out, way
    env = seen(socket)
    assert_equal ["GET", "websocket", "Upgrade", "13", version, true, ["websocket"], "/#{way}", "q=1", 16],
                 env.values_at("REQUEST_METHOD", "HTTP_UPGRADE", "HTTP_CONNECTION", "HTTP_SEC_WEBSOCKET_VERSION", "SERVER_PROTOCOL", "rack.hijack?", "rack.protocol",
                               "PATH_INFO", "QUERY_STRING", "key")
    assert_talks(socket)
    socket.close_write
    assert_equal "(end)", socket.read_to_end, way
  end

  WebSocket::VERSIONS.each do |version|
    it "opens a WebSocket in each of Rack's ways, and passes bytes and ends on (#{version})" do
      own = everything
      WAYS.each { |way| assert_way(version, own, way) }
    end

    it "does the same with a worker in plain Ruby (#{version})" do
      own = everything(env: { "FIREBRICK_PURE" => "1" })
      WAYS.each { |way| assert_way(version, own, way) }
    end

    it "does the same on fibers (#{version})" do
      own = everything(app: APP.gsub("Thread.new { talk.(env, io) }", "talk.(env, io)"), settings: { fibers: 20 }, workers: 1)
      WAYS.each { |way| assert_way(version, own, way) }
    end

    it "passes the end and a failure of the app on (#{version})" do
      own = everything
      socket = open_socket(version, own, "/partial")
      seen(socket)
      socket.write("close")
      assert_equal "", socket.read_to_end
      refute_predicate socket, :reset?
      socket = open_socket(version, own, "/protocol")
      seen(socket)
      socket.write("raise")
      assert_equal "", socket.read_to_end
      assert_logged(/on purpose/, on: own)
    end

    it "tells the app that the client has gone (#{version})" do
      own = everything(app: <<~'RUBY')
        run(lambda do |env|
          next [200, { "content-type" => "text/plain" }, [$gone.inspect]] unless env["rack.protocol"]
          [200, { "rack.protocol" => "websocket" }, ->(io) { io.write("hi"); io.read rescue nil; $gone = true; io.close }]
        end)
      RUBY
      socket = open_socket(version, own, "/")
      assert_equal "hi", socket.read_exactly(2)
      socket.reset!
      assert(wait_until { get("/", to: own).body == "true" })
    end

    it "answers a request that opens nothing (#{version})" do
      own = everything
      expected = { "/403" => [403, "no"], "/protocol-403" => [403, "no"], "/full-403" => [403, "no"] }
      expected.each { |path, answer| assert_equal answer, open_socket(version, own, path).then { |socket| [socket.status, socket.body] }, path }
      %w[/raise /protocol-other /protocol-each].each { |path| assert_equal 500, open_socket(version, own, path).status, path }
      assert_logged(/rack.protocol is "chat", which is none of the client's: websocket/, on: own)
      assert_logged(/a response with rack.protocol needs a body that responds to call/, on: own)
      next if version == "HTTP/1.1"

      # A 200 would mean that a WebSocket is open.
      assert_equal 501, open_socket(version, own, "/plain").status
      assert_equal 501, open_socket(version, own, "/partial", protocol: "connect-udp").status
      { "/full-wrong" => /Sec-WebSocket-Accept does not belong/, "/full-nothing" => /the app closed the connection before it/ }.each do |path, line|
        assert_equal 502, open_socket(version, own, path).status, path
        assert_logged(line, on: own)
      end
    end

    it "carries large amounts both ways (#{version})" do
      own = everything(settings: { limits: { max_body: "1k" } })
      socket = open_socket(version, own, "/protocol")
      seen(socket)
      # More than the windows of HTTP/2 together, which this client does not watch: it has no more than a piece on the way.
      data = Random.new(1).bytes(6_000_000).tr("^A-Z", "a")
      received = data.scan(/.{1,60000}/mn).sum("") do |part|
        socket.write(part)
        socket.read_exactly(part.bytesize)
      end
      assert received == data.upcase, "what came is not what was sent"
    end

    it "closes WebSockets with 1012 when the server stops, and at a reload (#{version})" do
      own = everything(workers: 2, settings: { reload: { watch: "0s", keep: "0s" } })
      sockets = Array.new(6) { open_socket(version, own, "/hold").tap { |socket| assert_equal "\x81\x02hi".b, socket.read_exactly(4) } }
      if version == "HTTP/2"
        client = sockets.first.client
        sockets += Array.new(4) { open_socket(version, own, "/hold", client:).tap { |socket| socket.read_exactly(4) } }
        assert_operator sockets.last.stream, :>, sockets.first.stream, "one connection"
      end
      assert_equal 0, own.command_line("reload", own.dir).last
      sockets.each { |socket| assert_equal RESTART, socket.read_to_end }
      after = open_socket(version, own, "/hold")
      after.read_exactly(4)
      own.signal(:TERM)
      assert_equal RESTART, after.read_to_end
      after.close_write
      assert_equal 0, own.wait_exit
    end

    it "leaves WebSockets open while the server is a lame duck, and while it finishes requests (#{version})" do
      own = everything(settings: { timeouts: { lame_duck: "30s" } })
      sockets = Array.new(2) { open_socket(version, own, "/framed") }
      gate = connect(own).write(request("GET", "/gate"))
      wait_until("the request to be served") { File.exist?(File.join(own.base, "entered")) }
      own.signal(:TERM)
      wait_until("the server to leave") { own.control("/status")["state"] == "leaving" }
      sockets.each { |socket| assert_answers(socket) }
      late = open_socket(version, own, "/framed")
      own.signal(:TERM)
      wait_until("the server to drain") { own.control("/status")["state"] == "draining" }
      [*sockets, late].each { |socket| assert_answers(socket) }
      if version == "HTTP/2"
        assert_equal :no_error, sockets.first.client.goaway&.code
        refute_predicate sockets.first.answer, :over?
      end
      FileUtils.touch(File.join(own.base, "go"))
      assert_equal "opened", gate.read_response.body
      [*sockets, late].each { |socket| assert_equal RESTART, socket.read_to_end }
      assert_equal 0, own.wait_exit
    end

    it "closes WebSockets with 1012 when a new program takes over (#{version})" do
      own = launch(app: APP, files: pair("own", "localhost", "127.0.0.1"), binds: WebSocket::BINDS, threads: "1:30")
      socket = open_socket(version, own, "/framed")
      assert_answers(socket)
      out = assert_upgrades(own, follow: false)
      assert_equal RESTART, socket.read_to_end
      socket.close
      own.follow(new_pid(out))
      assert_answers(open_socket(version, own, "/framed"))
    end

    # A chat whose clients only send: what passes through is no flood.
    it "takes 100,000 small messages in a row that the app does not answer (#{version})" do
      own = everything
      socket = open_socket(version, own, "/count")
      message = WebSocket.frame("x")
      if version == "HTTP/2"
        # Each message in a frame of its own.
        1000.times { socket.client.write(socket.client.data(socket.stream, message, end_stream: false) * 100) }
      else
        1000.times { 100.times { socket.write(message) } }
      end
      socket.close_write
      assert_equal (100_000 * message.bytesize).to_s, socket.read_to_end
    end

    it "outlives the time limits of requests, and is logged once, at its end (#{version})" do
      own = everything(settings: { timeouts: { worker: "300ms", keep_alive: "300ms", header: "2s" }, log: { access: "access.log", format: "json" } })
      socket = open_socket(version, own, "/partial")
      seen(socket)
      sleep 1.2
      assert_talks(socket)
      assert_empty lines(own)
      socket.close_write
      socket.read_to_end
      socket.close
      assert(wait_until { lines(own).any? })
      line = lines(own).first
      assert_equal ["GET", "/partial", version == "HTTP/1.1" ? 101 : 200], [line["method"], line["path"], line["status"]], line
      assert_equal 1, own.stats.dig("requests", "hijacked")
      assert(wait_until { own.stats.dig("connections", "open").zero? })
    end

    it "passes WebSockets on to origins that speak HTTP/1.1 (#{version})" do
      accept = ->(req) { [Digest::SHA1.digest(req["sec-websocket-key"] + WebSocket::GUID)].pack("m0") }
      behind = Backend.new do |conn, req|
        next conn.respond("plain") unless req["upgrade"]

        conn.write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: #{accept.call(req)}\r\n\r\nwelcome")
        while (piece = conn.read_some)
          conn.write("echo #{piece}")
        end
        conn.close
      end
      files = pair("own", "localhost", "127.0.0.1").merge("public_html/index.html" => "home")
      rules = { proxies: { "/api": { origin: behind.origin }, "/off": { origin: behind.origin, websocket: false } } }
      own = SiteServer.new(files:, rules:, binds: WebSocket::BINDS).tap { |server| @own_servers << server }.start
      socket = open_socket(version, own, "/api/socket")
      assert_predicate socket, :accepted?
      assert_equal "welcome", socket.read_exactly(7)
      socket.write("hello")
      assert_equal "echo hello", socket.read_exactly(10)
      request = behind.requests.first
      assert_equal ["GET /socket HTTP/1.1", "websocket", "13"], [request.raw_head.lines.first.chomp, request["upgrade"], request["sec-websocket-version"]]
      socket.reset!
      assert(wait_until { behind.connections.first.socket.closed? })
      assert_equal version == "HTTP/1.1" ? 200 : 501, open_socket(version, own, "/off/socket").status
      assert_equal version == "HTTP/1.1" ? 200 : 501, open_socket(version, own, "/index.html").status
    ensure
      behind&.close
    end
  end

  it "runs a library that hijacks (websocket-driver), over all versions, between visitors" do
    skip "websocket-driver is not installed" unless system("ruby", "-rwebsocket/driver", "-e", "", err: File::NULL)
    files = pair("own", "localhost", "127.0.0.1")
    folder = File.join(Server::ROOT, "examples/websocket-chat")
    Dir.children(folder).each { |name| files[name] = File.read(File.join(folder, name)) if File.file?(File.join(folder, name)) }
    own = start(files:, binds: WebSocket::BINDS, threads: "1:2")
    sockets = WebSocket::VERSIONS.first(QuicGo.client ? 3 : 2).to_h { |version| [version, open_socket(version, own, "/chat")] }
    sockets.each { |version, socket| assert_predicate socket, :accepted?, version }
    heard = ->(socket) { JSON.parse(socket.read_exactly(socket.read_exactly(2).getbyte(1) & 127)) }
    sockets.each_value { |socket| nil until heard.call(socket)["visitors"] == sockets.size }
    sockets.each do |version, socket|
      socket.write(WebSocket.frame("I am #{version}"))
      sockets.each_value { |other| assert_equal "I am #{version}", heard.call(other)["text"] }
    end
    sockets.each_value do |socket|
      socket.write(WebSocket.frame([1000].pack("n"), opcode: 8))
      rest = socket.read_to_end
      assert_includes rest, "\x88\x02\x03\xE8".b
      socket.close
    end
  end

  it "offers nothing to requests that ask for nothing" do
    own = everything
    ["/plain", "/again"].each do |path|
      env = get(path, to: own).json
      assert_equal [nil, true], env.values_at("rack.protocol", "rack.hijack?")
      client = Http2Client.new(own.address).tap { |one| @connections << one }
      env = JSON.parse(client.get(path).body)
      assert_equal [nil, false], env.values_at("rack.protocol", "rack.hijack?")
    end
    # Without Connection, or in HTTP/1.0, the field asks for nothing (RFC 9110 section 7.8).
    assert_nil get("/plain", to: own, headers: { "Upgrade" => "websocket" }).json["rack.protocol"]
    old = ask("GET /plain HTTP/1.0\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n", to: own)
    assert_nil old.json["rack.protocol"]
    several = get("/plain", to: own, headers: { "Connection" => "upgrade, x", "Upgrade" => "chat/2, websocket" })
    assert_equal ["chat/2", "websocket"], several.json["rack.protocol"]
    assert_status 500, get("/protocol", to: own)
    assert_logged(/rack.protocol is "websocket", but the client offers no protocol/, on: own)
  end

  it "switches to other protocols over HTTP/1.1" do
    own = everything(app: <<~'RUBY')
      run ->(env) { [200, { "rack.protocol" => "shout" }, ->(io) { io.write(io.readpartial(100).upcase); io.close }] }
    RUBY
    socket = open_socket("HTTP/1.1", own, "/", protocol: "shout, websocket")
    assert_equal [101, "shout", nil], [socket.status, socket.fields["upgrade"], socket.fields["sec-websocket-accept"]]
    socket.write("hello")
    assert_equal "HELLO", socket.read_to_end
  end

  it "shares a connection of HTTP/2 between WebSockets and requests" do
    own = everything
    client = Http2Client.new(own.address).tap { |one| @connections << one }
    30.times do |round|
      sockets = Array.new(4) { open_socket("HTTP/2", own, "/protocol", client:) }
      sockets.each { |socket| seen(socket) && assert_talks(socket) }
      assert_equal 200, client.get("/plain").status
      sockets.each { |socket| round.odd? ? socket.close_write : socket.write("close") }
      sockets.each { |socket| assert_equal round.odd? ? "(end)" : "", socket.read_to_end }
      sockets.each(&:close_write) if round.even?
    end
    assert_equal 1, own.stats.dig("connections", "open")
  end

  it "keeps to the window of an app that does not read, without holding up its connection" do
    own = everything(app: <<~'RUBY')
      run(lambda do |env|
        next [200, { "content-type" => "text/plain" }, ["ok"]] unless env["rack.protocol"]
        [200, { "rack.protocol" => "websocket" }, ->(io) { io.write("hi"); Thread.new { sleep } }]
      end)
    RUBY
    client = Http2Client.new(own.address).tap { |one| @connections << one }
    socket = open_socket("HTTP/2", own, "/", client:)
    socket.read_exactly(2)
    socket.write("x" * 1_000_000)
    10.times { assert_equal 200, client.get("/").status }
  end

  it "opens a WebSocket in Chromium, over the connection of HTTP/2 that has served the page" do
    require "support/browser"
    skip "needs Chromium" unless Browser.installed?
    pem = pair("own", "localhost", "127.0.0.1")
    own = start(files: pem, binds: [WebSocket::BINDS.last], args: ["--no-http3"], app: <<~'RUBY')
      require "digest/sha1"
      run(lambda do |env|
        next [200, { "content-type" => "text/html" }, ["<!doctype html><title>socket</title>"]] unless env["rack.protocol"]
        frame = ->(text) { [0x81, text.bytesize].pack("CC") + text }
        [200, { "rack.protocol" => "websocket", "sec-websocket-protocol" => "two" }, lambda { |io|
          io.write(frame.("#{env['SERVER_PROTOCOL']} #{env['HTTP_ORIGIN'].start_with?('https://127.0.0.1:')}"))
          loop do
            head = io.read(2).bytes
            mask, text = io.read(4).bytes, io.read(head[1] & 127).bytes
            text = text.each_with_index.map { |byte, i| byte ^ mask[i % 4] }.pack("C*")
            break io.write([0x88, 2].pack("CC") + [1000].pack("n")) if head[0] & 15 == 8
            io.write(frame.(text.upcase))
          end
          io.close
        }]
      end)
    RUBY
    der = OpenSSL::PKey.read(pem.fetch("own.key")).public_to_der
    browser = Browser.new(flags: ["--ignore-certificate-errors-spki-list=#{[OpenSSL::Digest::SHA256.digest(der)].pack('m0')}"])
    page = browser.page
    assert_equal 200, page.goto(own.url).status
    page.evaluate("var got = [], ended = null, socket = new WebSocket(location.href.replace('https', 'wss'), ['one', 'two']);
                   socket.onmessage = one => got.push(one.data); socket.onclose = one => ended = [one.code, one.wasClean]; 1")
    page.wait("got.length == 1")
    assert_equal "HTTP/2 true", page.evaluate("got[0]")
    assert_equal "two", page.evaluate("socket.protocol")
    page.evaluate("socket.send('hello'); 1")
    page.wait("got.length == 2")
    assert_equal "HELLO", page.evaluate("got[1]")
    page.evaluate("socket.close(1000); 1")
    page.wait("ended")
    assert_equal [1000, true], page.evaluate("ended")
    assert_equal 1, own.stats.dig("connections", "accepted")
  ensure
    browser&.close
  end

  private

  def lines(own)
    path = own.path("access.log")
    File.exist?(path) ? File.readlines(path).map { |line| JSON.parse(line) } : []
  end
end
