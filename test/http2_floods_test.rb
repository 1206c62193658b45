# frozen_string_literal: true

# HTTP/2 clients that try to exhaust the server. Each flood is one connection that repeats one action as fast as it can. The
# connection ends or is held within bounds; meanwhile another client is served, and the memory of the front stays within bounds.

require "support/http2_case"

class Http2FloodsTest < Http2Case
  in_turn!

  APP = <<~'RUBY'
    class Endless
      def each = loop { yield "x" * 65_536 }
    end

    run lambda { |env|
      case env["PATH_INFO"]
      when "/large" then [200, { "content-type" => "text/plain" }, ["x" * 1_000_000]]
      when "/endless" then [200, { "content-type" => "text/plain" }, Endless.new]
      when "/sleep" then sleep 0.2; [200, {}, ["slept"]]
      else [200, { "content-type" => "text/plain" }, ["quick"]]
      end
    }
  RUBY

  # Bytes of memory that a flood may use. Floods of response bodies are also bounded by limits.response_memory.
  BOUND = 96 << 20
  ROUNDS = 400

  shared_server app: APP, threads: "5:5",
                settings: { front_threads: 1, limits: { max_body: "64MiB" }, timeouts: { header: 3, send: 3, keep_alive: 20 } }

  # Writes the block's bytes until the server ends the connection. Returns whether it did.
  def flood(client, rounds: ROUNDS)
    rounds.times do |round|
      bytes = yield(round)
      return true unless push(client, bytes)
    end
    client.ends?(within: 3)
  end

  # Writes, and reads the bytes that have arrived. Returns false at the end of the connection.
  def push(client, bytes)
    client.socket.write_nonblock(bytes)
    drain(client)
  rescue IO::WaitWritable
    return false unless drain(client)

    client.socket.wait_writable(0.2) ? retry : true
  rescue SystemCallError, IOError
    false
  end

  def drain(client)
    while client.socket.wait_readable(0)
      frame = client.read_frame(0.5)
      return false if frame.nil? || client.goaway
    end
    !client.goaway
  end

  # Asserts that another client is served while the flood goes on, and memory is bounded.
  def assert_bounded(bound: BOUND)
    before = front_memory
    stop = false
    delays = []
    other = Thread.new do
      until stop
        delays << Clock.elapsed { assert_equal "quick", fetch("/other").body }
        sleep 0.02
      end
    end
    wait_until("the other client is served") { delays.any? }
    yield
    assert_equal "quick", fetch("/after").body
    assert_operator front_memory - before, :<, bound, "memory of the front"
  ensure
    stop = true
    other&.join
  end

  # Asserts that the server ends the connection with ENHANCE_YOUR_CALM or one of +codes+.
  def assert_calmed(client, *codes)
    codes = [:enhance_your_calm] if codes.empty?
    assert_includes codes, client.goaway.code if client.goaway
  end

  def many(count, &block)
    Array.new(count, &block).join
  end

  def heads(client, path = "/x", count: 50, **options)
    many(count) do
      stream = client.next_stream
      client.headers(stream, Hpack.block(client.fields(path)), **options) + (block_given? ? yield(stream) : "")
    end
  end

  # --- floods that end the connection

  # name => the bytes of each round
  ENDED = {
    "rapid reset" => ->(test, client) { test.heads(client, "/sleep") { |stream| client.rst_stream(stream) } },
    "rapid reset of requests with bodies" => ->(test, client) { test.heads(client, "/sleep", end_stream: false) { |stream| client.rst_stream(stream) } },
    "made you reset by windows of zero" => ->(test, client) { test.heads(client, "/sleep") { |stream| client.window_update(stream, 0) } },
    "made you reset by windows beyond 2^31" => ->(test, client) { test.heads(client, "/sleep") { |stream| client.window_update(stream, 0x7fffffff) * 2 } },
    "made you reset by data after the end" => ->(test, client) { test.heads(client, "/sleep") { |stream| client.data(stream, "x") } },
    "made you reset by dependencies" => ->(test, client) { test.heads(client, "/sleep") { |stream| client.frame(:priority, 0, stream, [stream, 0].pack("NC")) } },
    "malformed requests" => ->(_, client) { Array.new(50) { client.headers(client.next_stream, Hpack.block([%w[:method GET]])) }.join },
    "pings" => ->(_, client) { client.frame(:ping, 0, 0, "12345678") * 500 },
    "answers to pings that nobody sent" => ->(_, client) { client.frame(:ping, 1, 0, "12345678") * 500 },
    "settings" => ->(_, client) { client.settings_frame({ 4 => 65_535 }) * 500 },
    "empty settings" => ->(_, client) { client.settings_frame({}) * 500 },
    "settings with a thousand entries" => ->(_, client) { client.settings_frame((0...1000).map { |i| [0xff00 + (i & 15), i] }) * 50 },
    "windows that change back and forth" => ->(_, client) { (client.settings_frame({ 4 => 1 }) + client.settings_frame({ 4 => 1 << 20 })) * 200 },
    "priorities" => ->(_, client) { client.frame(:priority, 0, 1, [3, 0].pack("NC")) * 500 },
    "priority updates" => ->(_, client) { client.frame(:priority_update, 0, 0, "#{[1].pack('N')}u=1") * 500 },
    "window updates of the connection" => ->(_, client) { client.window_update(0, 1) * 500 },
    "empty data" => ->(_, client) { client.data(client.instance_variable_get(:@body), "", end_stream: false) * 500 },
    "data with nothing but padding" => ->(_, client) { client.frame(:data, Http2Client::PADDED, client.instance_variable_get(:@body), "\xff".b + ("\0" * 255)) * 200 },
    "data of one byte" => ->(_, client) { client.data(client.instance_variable_get(:@body), "x", end_stream: false) * 500 },
    "frames of unknown types" => ->(_, client) { client.frame(0x77, 0, 0, "x") * 500 },
    "frames on streams that are closed" => ->(_, client) { client.window_update(1, 1) * 500 }
  }.freeze

  ENDED.each do |name, round|
    it "ends a connection that floods with #{name}" do
      client = http2
      body = name.include?("data") && !name.include?("reset") ? client.request("/echo", method: "POST", body: :open) : nil
      client.get("/first") unless body
      client.instance_variable_set(:@body, body)
      assert_bounded { assert flood(client) { round.call(self, client) }, "the connection is still open: #{client.frames}" }
      assert_calmed client, :enhance_your_calm, :protocol_error, :stream_closed
    end
  end

  it "ends a connection that floods with CONTINUATION" do
    client = http2
    # SETTINGS have been acknowledged, so no other frame comes in between.
    client.get("/first")
    stream = client.next_stream
    client.write(client.headers(stream, Hpack.block(client.fields), flags: 0))
    assert_bounded { assert(flood(client) { |i| client.frame(:continuation, 0, stream, Hpack.literal("x-#{i}", "v" * 1000)) * 10 }) }
    assert_calmed client
  end

  it "ends a connection that floods with empty CONTINUATION" do
    client = http2
    # SETTINGS have been acknowledged, so no other frame comes in between.
    client.get("/first")
    stream = client.next_stream
    client.write(client.headers(stream, Hpack.block(client.fields), flags: 0))
    assert_bounded { assert(flood(client) { client.frame(:continuation, 0, stream) * 500 }) }
    assert_calmed client
  end

  it "ends a connection with an HPACK bomb: one large entry, thousands of references" do
    client = http2
    bomb = Hpack.block(client.fields) + Hpack.indexed_literal("x-bomb", "b" * 3500) + (Hpack.indexed(62) * 12_000)
    assert_bounded { assert(flood(client, rounds: 20) { client.headers(client.next_stream, bomb) }) }
    assert_calmed client
  end

  it "refuses requests with thousands of small fields that refer to a table" do
    client = http2
    bomb = Hpack.block(client.fields) + Hpack.indexed_literal("x", "") + (Hpack.indexed(62) * 350)
    assert_bounded do
      flood(client, rounds: 50) { many(10) { client.headers(client.next_stream, bomb) } }
      refute(client.answers.values.any? { |answer| answer.status == 200 })
    end
  end

  it "ends a connection that breaks the table" do
    client = http2
    assert_bounded { assert(flood(client) { client.headers(client.next_stream, Hpack.indexed(3000)) }) }
    assert_calmed client, :compression_error
  end

  # --- clients that hold resources

  it "refuses streams beyond the limit and keeps serving the others" do
    client = http2
    assert_bounded do
      client.write(heads(client, "/sleep", count: 300))
      client.read_until("answers") { client.answers.size >= 300 && client.answers.values.all?(&:over?) }
    end
    results = client.answers.values.map(&:result).tally
    assert_equal [200, :refused_stream].sort_by(&:to_s), results.keys.sort_by(&:to_s), results.inspect
    assert_operator results[200], :>=, 100
  end

  it "gives up streams whose window stays closed" do
    client = http2(settings: { 4 => 0 })
    assert_bounded do
      streams = Array.new(100) { client.request("/large") }
      client.read_until("resets", within: 40) { streams.all? { |stream| client.answers[stream].reset } }
    end
    assert client.alive?
  end

  it "gives up a client that stops reading its responses" do
    client = http2(receive_buffer: 8192)
    assert_bounded(bound: 192 << 20) do
      client.write(heads(client, "/endless", count: 3))
      wait_until("the connection is given up", within: 40) { server.stats.dig("connections", "open").to_i <= 2 }
    end
  end

  it "gives up a client that never reads what it asks for" do
    client = http2(receive_buffer: 8192)
    assert_bounded do
      accepted = (0...40_000).take_while { blind(client, heads(client, "/#{'n' * 40}")) }.size
      assert_operator accepted, :<, 40_000, "the server stops reading"
      wait_until("the connection is given up", within: 40) { blind(client, client.frame(:ping, 0, 0, "12345678")).! }
      wait_until("it is closed", within: 40) { closed?(client) }
    end
  end

  it "gives up headers that come byte by byte" do
    client = http2
    client.get("/first")
    bytes = client.headers(client.next_stream, Hpack.block(client.fields("/#{'slow' * 50}")))
    assert_bounded do
      ended = bytes.each_char.with_index.any? { |byte, i| i.positive? && (client.ends?(within: 0.2) || !push(client, byte)) }
      assert ended || client.ends?
    end
  end

  it "gives up a preface that does not come" do
    assert_bounded do
      silent = Array.new(20) { http2(preface: "") }
      half = Array.new(20) { http2(preface: "PRI * HTTP/2.0\r\n\r\nSM") }
      (silent + half).each { |client| assert client.ends?(within: 15) }
    end
  end

  it "gives up a client that never acknowledges SETTINGS" do
    client = Connection.new(server.address).tap { |one| @connections << one }
    client.write("#{Http2Client::PREFACE}\0\0\0\4\0\0\0\0\0".b)
    assert_bounded { assert client.ended?(within: 15) }
  end

  it "holds no more of a body than its windows, however much is sent" do
    client = http2
    assert_bounded do
      streams = Array.new(60) { client.request("/echo", method: "POST", body: :open) }
      ended = flood(client, rounds: 100) { many(8) { |i| client.data(streams[i], "x" * 16_384, end_stream: false) } }
      assert ended || client.answers.values.any?(&:reset) || client.alive?
    end
  end

  it "serves others while hundreds of connections have streams that wait" do
    assert_bounded(bound: 192 << 20) do
      # Each client acknowledges SETTINGS at once: on a busy machine it may be late when its turn to read comes.
      clients = Array.new(60) { http2.tap { |client| client.read_until("SETTINGS") { client.settings } } }
      clients.each { |client| client.write(heads(client, "/quick", count: 100)) }
      clients.each { |client| client.read_until("answers") { client.answers.size == 100 && client.answers.values.all?(&:over?) } }
      assert(clients.all? { |client| client.answers.values.all? { |answer| answer.status == 200 } })
      clients.each(&:close)
    end
  end

  private

  # Returns whether the server has closed the connection. The client may learn that later, because it has no room to receive the message.
  def closed?(client)
    port = format(":%04X", client.socket.local_address.ip_port)
    File.foreach("/proc/net/tcp").none? do |line|
      _, _local, remote, state = line.split
      state == "01" && remote.end_with?(port)
    end
  end

  # Writes without reading. Returns false when the connection has ended or takes no more bytes for a while.
  def blind(client, bytes)
    client.socket.write_nonblock(bytes)
    true
  rescue IO::WaitWritable
    client.socket.wait_writable(0.5) ? retry : false
  rescue SystemCallError, IOError
    false
  end
end
