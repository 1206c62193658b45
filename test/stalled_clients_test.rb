# frozen_string_literal: true

# Clients that read slowly or not at all. `timeouts.send` is the longest time in which a client may acknowledge nothing, in any protocol. For a
# client that has stopped, neither the server nor the kernel keeps data; one that reads on is served, however slowly.

require "support/background_command"
require "support/http2_client"
require "support/quic_go"
require "support/tls_case"

class StalledClientsTest < TlsCase
  parallel! slow: 40

  SEND = 2
  APP = <<~'RUBY'
    class Pieces
      def each = 400.times { yield "0123456789" * 1000 }
    end

    class Ticking
      def each = loop { yield "tick" * 5_000; sleep 0.05 }
    end

    text = { "content-type" => "text/plain" }
    run lambda { |env|
      case env["PATH_INFO"]
      when "/string" then [200, text, ["0123456789" * 400_000]]
      when "/chunked" then [200, text, Pieces.new]
      when "/file" then [200, text, File.open("large.log", "rb")]
      when "/some" then [200, text, ["0123456789" * 15_000]]
      when "/late" then sleep 33; [200, text, ["late"]]
      when "/ticking" then [200, text, Ticking.new]
      when "/tunnel"
        [101, { "connection" => "upgrade", "upgrade" => "raw", "rack.hijack" => lambda { |io|
          Thread.new { loop { io.write("x" * 65_536) } }
        } }, []]
      else [200, text, ["quick"]]
      end
    }
  RUBY
  FILES = { "large.log" => "0123456789" * 400_000 }.freeze
  STATES = { "01" => "ESTABLISHED", "04" => "FIN-WAIT-1", "09" => "LAST-ACK", "0B" => "CLOSING" }.freeze

  def serve(binds: nil, **timeouts)
    pem = pair("own", "localhost", "127.0.0.1")
    binds ||= ["tcp://127.0.0.1:0?h2c=true"]
    start(app: APP, files: FILES.merge(pem), threads: "16:16", binds:,
          settings: { front_threads: 1, compression: { responses: false }, timeouts: { send: SEND, keep_alive: 60 }.merge(timeouts) })
  end

  def serve_tls(**timeouts) = serve(binds: ["ssl://127.0.0.1:0?cert=own.pem&key=own.key"], **timeouts)

  # The server's open connections: their states, and the unsent bytes in the kernel.
  def kept(own)
    port = format("%04X", own.port)
    File.readlines("/proc/net/tcp").filter_map do |line|
      fields = line.split
      STATES[fields[3]]&.then { |state| [state, fields[4].split(":").first.hex] } if fields[1]&.end_with?(":#{port}")
    end
  end

  def assert_nothing_kept(own, clients)
    wait_until("all are connected") { kept(own).size >= clients }
    sleep 0.5
    total = kept(own).sum(&:last)
    assert_operator total, :<=, clients * (200 << 10), "bytes that the kernel keeps"
    wait_until(-> { "nothing to be kept for clients that read nothing: #{kept(own)}" }, within: SEND + 5) { kept(own).empty? }
  end

  %w[string chunked file some ticking].each do |path|
    ["HTTP/1.1", "HTTP/1.0"].each do |version|
      it "keeps nothing for clients of #{version} that do not read /#{path}" do
        own = serve
        clients = Array.new(10) { connect(own, receive_buffer: 8192).write("GET /#{path} #{version}\r\nHost: x\r\n\r\n") }
        assert_nothing_kept(own, clients.size)
      end
    end
  end

  it "keeps nothing for clients that take nothing of a tunnel" do
    own = serve
    upgrade = request("GET", "/tunnel", { "Connection" => "upgrade", "Upgrade" => "raw" })
    clients = Array.new(5) { connect(own, receive_buffer: 8192).write(upgrade) }
    assert_nothing_kept(own, clients.size)
  end

  %w[string file chunked].each do |path|
    it "keeps nothing for clients of TLS that do not read /#{path}" do
      own = serve_tls
      clients = Array.new(5) { dial(own, receive_buffer: 8192).write(request("GET", "/#{path}")) }
      assert_nothing_kept(own, clients.size)
    end
  end

  [["that leave their windows open", 1 << 30], ["whose windows are used up", 20_000]].each do |which, window|
    it "keeps nothing for clients of HTTP/2 #{which} and who do not read" do
      own = serve
      clients = Array.new(5) do
        client = Http2Client.new(own.address, settings: { 4 => window }, receive_buffer: 8192)
        @connections << client
        3.times { client.request("/string") }
        client
      end
      assert_nothing_kept(own, clients.size)
    end
  end

  # A client that opens a large window again when half of it is read asks for nothing for minutes.
  it "gives a client of HTTP/2 that has taken a large window the time to read it, which has an end" do
    own = serve
    clients = Array.new(2) do
      client = Http2Client.new(own.address, settings: { 4 => 1 << 20 })
      @connections << client
      stream = client.request("/string")
      client.read_until("the window to be used up") { client.answers[stream].body.bytesize == 1 << 20 }
      [client, stream]
    end
    sleep 2 * SEND
    client, stream = clients.first
    client.write(client.window_update(stream, 4_000_000))
    assert_equal 4_000_000, client.answer(stream).body.bytesize
    client, stream = clients.last
    assert_equal :cancel, client.answer(stream).reset
  end

  it "gives a client of HTTP/3 that has taken a large window the time to read it" do
    skip "needs Go and quic-go: script/setup test" unless QuicGo.client
    answer = QuicGo.ask(serve_tls, "/string", "-window", 1 << 20, "-read", 1_000, "-pause", "#{2 * SEND}s").first
    assert_equal [4_000_000, nil], answer.values_at("length", "error")
  end

  # A client that reads what it has sends no packets meanwhile, and its window may have no room for any frame of HTTP/3.
  { "whose window is used up" => %w[/string 4000000], "that has everything" => %w[/some 150000] }.each do |which, (path, length)|
    it "keeps the connection of a client of HTTP/3 #{which} for longer than its idle time" do
      skip "needs Go and quic-go: script/setup test" unless QuicGo.client
      own = serve_tls(send: 5)
      answer = QuicGo.ask(own, path, "-window", 1 << 20, "-idle", "12s", "-read", 1_000, "-pause", "15s").first
      assert_equal [Integer(length), nil], answer.values_at("length", "error")
    end
  end

  it "gives a client of HTTP/3 all that it reads slowly, although everything has been sent long before" do
    skip "needs Go and quic-go: script/setup test" unless QuicGo.client
    own = serve_tls(keep_alive: 1)
    answer = QuicGo.ask(own, "/some", "-rate", 20_000).first
    assert_equal [150_000, nil], answer.values_at("length", "error")
    wait_until("the connection to end") { own.stats.dig("connections", "open").zero? }
  end

  # Without any packet, either side gives a QUIC connection up after 30 s.
  it "keeps a connection of HTTP/3 while the app works on a response" do
    skip "needs Go and quic-go: script/setup test" unless QuicGo.client
    assert_equal [200, 4, nil], QuicGo.ask(serve_tls, "/late").first.values_at("status", "length", "error")
  end

  it "gives clients of HTTP/3 that read slowly their response when the server ends meanwhile" do
    skip "needs Go and quic-go: script/setup test" unless QuicGo.client
    own = serve_tls
    client = BackgroundCommand.new({}, *QuicGo.command(own, "/some", "-rate", 20_000), chdir: own.dir)
    wait_until("it has been sent") { own.stats.dig("requests", "total") == 1 }
    own.signal("TERM")
    assert_equal [150_000, nil], JSON.parse(client.wait.output.lines.last).first.values_at("length", "error")
    assert_equal 0, own.wait_exit
  end

  %w[string file chunked].each do |path|
    it "ends the response to a client of HTTP/3 that does not read /#{path}" do
      skip "needs Go and quic-go: script/setup test" unless QuicGo.client
      own = serve_tls
      client = BackgroundCommand.new({}, *QuicGo.command(own, "/#{path}", "-read", 1_000, "-pause", "#{SEND + 8}s"), chdir: own.dir)
      wait_until("it has stopped") { client.output.include?("paused") }
      assert_equal 0, own.stats.dig("requests", "total")
      wait_until("the request to end", within: SEND + 6) { own.stats.dig("requests", "total") == 1 }
      answer = JSON.parse(client.wait.output.lines.last).first
      refute_nil answer["error"], "a response that was cut off looks complete"
      assert_operator answer["length"], :<, 4_000_000
    end
  end

  it "keeps nothing of a response that was written whole before its client stopped to read" do
    own = serve
    clients = Array.new(10) do
      connect(own, receive_buffer: 8192).write(request("GET", "/some", { "Connection" => "close" }))
    end
    assert_nothing_kept(own, clients.size)
  end

  # `timeouts.send` for a client that reads steadily: long enough for a machine that pauses it for a second.
  STEADY = 6

  # Reads slower than a third of the kernel's buffer per `timeouts.send`, for longer than that. Returns the number of bytes.
  def read_steadily(connection, seconds: 2 * STEADY, piece: 800)
    stop = Clock.now + seconds
    bytes = 0
    while Clock.now < stop
      bytes += connection.read_exactly(piece).bytesize
      sleep 0.02
    end
    bytes
  end

  [%w[string 0], %w[file 0], %w[chunked 0], %w[string tls], %w[file tls]].each do |path, tls|
    it "serves a client that reads /#{path} steadily but slowly#{' over TLS' if tls == 'tls'}" do
      own = tls == "tls" ? serve_tls(send: STEADY) : serve(send: STEADY)
      connection = tls == "tls" ? dial(own, receive_buffer: 8192) : connect(own, receive_buffer: 8192)
      connection.write(request("GET", "/#{path}"))
      head = connection.read_head
      assert_status 200, head
      if path == "chunked"
        read_steadily(connection)
      else
        rest = 4_000_000 - read_steadily(connection)
        assert_equal rest, connection.read_exactly(rest).bytesize
        assert_alive connection
      end
    end
  end

  # The last bytes are read long after the server has closed the connection.
  { "at its request" => { "Connection" => "close" }, "when it is idle" => {} }.each do |why, fields|
    it "gives a client that reads steadily but slowly all of the response before the connection closes #{why}" do
      own = serve(send: STEADY, keep_alive: 1)
      connection = connect(own, receive_buffer: 8192)
      connection.write(request("GET", "/some", fields))
      # Straight from the socket: the window opens by a few bytes at a time.
      received = +"".b
      loop do
        received << connection.socket.readpartial(200)
        sleep 0.02
      rescue EOFError
        break
      end
      assert_equal 150_000, received.split("\r\n\r\n", 2).last.bytesize
    end
  end

  it "serves a client of HTTP/2 that reads steadily but slowly" do
    own = serve(send: STEADY)
    client = Http2Client.new(own.address, receive_buffer: 8192)
    @connections << client
    streams = Array.new(2) { client.request("/string") }
    raw = client.instance_variable_get(:@connection)
    stop = Clock.now + (2 * STEADY)
    # Bytes are read from the socket slowly, and its frames later.
    while Clock.now < stop
      raw.buffered << raw.socket.readpartial(800)
      sleep 0.02
    end
    streams.each { |stream| assert_equal 4_000_000, client.answer(stream).body.bytesize }
  end

  it "ends the connection of a client that is slower than the least rate, and keeps one that is faster" do
    own = start(app: APP, files: FILES, threads: "4:4",
                settings: { front_threads: 1, compression: { responses: false }, timeouts: { send: 120 }, limits: { min_download_rate: 5_000 } })
    slow, fast = Array.new(2) { connect(own, receive_buffer: 8192).write(request("GET", "/string")) }
    [slow, fast].each(&:read_head)
    reader = Thread.new { read_steadily(fast, seconds: 20, piece: 1_600) }
    wait_until("the slow one is cut", within: 60) do
      slow.socket.readpartial(100)
      sleep 0.2
      false
    rescue SystemCallError, EOFError
      true
    end
    reader.join
  end

  it "asks clients over TCP whether they are there when nothing is sent" do
    own = serve(tcp_keepalive: 7)
    client = connect(own)
    client.write(request("GET", "/quick"))
    assert_status 200, client.read_response
    port = format("%04X", own.port)
    timer = File.readlines("/proc/net/tcp").map(&:split).find { |fields| fields[1].end_with?(":#{port}") && fields[3] == "01" }[5]
    assert timer.start_with?("02:"), "a timer of keep-alive: #{timer}"
    assert_operator timer.split(":").last.hex, :<=, 700
  end
end
