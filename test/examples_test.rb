# frozen_string_literal: true

# Each example is started as its README says, and used as by its users.

require "support/case"
require "support/redis_server"
require "securerandom"

class ExamplesTest < Case
  parallel!

  include RedisServer

  ROOT = File.join(Server::ROOT, "examples")

  # A server in the example's own directory.
  def example(name, **options)
    start(directory: File.join(ROOT, name), **options)
  end

  def form(fields)
    fields.map { |name, value| "#{name}=#{value.b.gsub(/[^a-zA-Z0-9]/n) { |byte| format('%%%02X', byte.ord) }}" }.join("&")
  end

  it "covers every example, and each has a README" do
    names = Dir.children(ROOT).select { |name| File.directory?(File.join(ROOT, name)) }.sort
    # Examples of mruby handlers are tested by mruby_examples_test.rb, Redmine's by redmine_test.rb, the price ticker by hub_events_test.rb,
    # presence by hub_presence_test.rb, the chat with Turbo Streams by hub_turbo_test.rb.
    names, = names.partition { |name| !name.start_with?("mruby-") && name != "redmine" }
    assert_equal %w[hello jekyll json-redis presence price-ticker sinatra sleepers spa turbo-chat websocket-chat], names
    names.each { |name| assert File.file?(File.join(ROOT, name, "README.md")), name }
    apps, sites = names.partition { |name| File.file?(File.join(ROOT, name, "config.ru")) }
    # The sites are tested by pages_test.rb.
    assert_equal [%w[hello json-redis presence price-ticker sinatra sleepers turbo-chat websocket-chat], %w[jekyll spa]], [apps, sites]
  end

  it "runs sleepers" do
    own = example("sleepers", workers: 1, threads: "1:1", args: ["--fibers", "200"])
    began = now
    sleeping = Array.new(200) { connect(own).write(request("GET", "/sleep/2")) }
    assert_equal "slept\n", get("/", to: own).body
    assert_equal ["slept\n"], sleeping.map { |one| one.read_response.body }.uniq
    assert_operator now - began, :<, 60, "they slept at the same time"
  end

  it "runs hello" do
    response = get("/", to: example("hello", workers: 2))
    assert_status 200, response
    assert_equal "Hello from Firebrick\n", response.body
  end

  it "runs sinatra: page, form, JSON, style sheet" do
    own = example("sinatra")
    page = get("/", to: own)
    assert_status 200, page
    assert_match(%r{\Atext/html}, page["content-type"])
    assert_match(/<form/, page.body)

    signed = post("/entries", form("name" => "Ada <b>", "text" => "caf\u00e9 & more"), to: own, headers: { "Content-Type" => "application/x-www-form-urlencoded" })
    assert_status 303, signed
    assert_equal "http://example.test/", signed["location"]
    assert_includes get("/", to: own).body.force_encoding("UTF-8"), "caf\u00e9 &amp; more"
    refute_includes get("/", to: own).body, "Ada <b>"
    entry = get("/entries.json", to: own).json.first
    assert_equal ["Ada <b>", "caf\u00e9 & more"], entry.values_at("name", "text")

    assert_status 422, post("/entries", form("name" => "", "text" => "x"), to: own, headers: { "Content-Type" => "application/x-www-form-urlencoded" })
    assert_status 404, get("/missing", to: own)
    assert_equal "up\n", get("/up", to: own).body
    assert_match(%r{\Atext/css}, get("/guestbook.css", to: own)["content-type"])
  end

  it "runs json-redis with a real Redis" do
    with_redis do |url|
      own = example("json-redis", workers: 2, threads: "1:3", env: { "REDIS_URL" => url })
      assert_equal [], get("/notes", to: own).json
      texts = (1..20).map { |i| "note #{i} \u{1f9f1}" }
      made = texts.map { |text| post("/notes", JSON.generate(text: text), to: own) }
      made.each { |response| assert_status 201, response }
      listed = get("/notes", to: own).json
      assert_equal(texts.reverse, listed.map { |note| note["text"] })
      path = made.first["location"]
      assert_equal texts.first, get(path, to: own).json["text"]
      assert_status 204, ask(request("DELETE", path), to: own)
      assert_status 404, get(path, to: own)
      assert_status 422, post("/notes", "nonsense", to: own)
      assert_status 405, ask(request("PUT", "/notes", {}, "{}"), to: own)
      assert_status 413, post("/notes", "x" * 100_000, to: own)
    end
  end

  it "reports a missing Redis in json-redis" do
    own = example("json-redis", env: { "REDIS_URL" => "redis://127.0.0.1:1/0" })
    assert_status 503, get("/notes", to: own)
  end

  it "runs websocket-chat: page, handshake, messages between visitors, close" do
    own = example("websocket-chat", threads: "1:2")
    assert_match(%r{\Atext/html}, get("/", to: own)["content-type"])
    assert_status 426, get("/chat", to: own)

    visitors = Array.new(4) { Visitor.new(connect(own)) }
    visitors.each { |visitor| visitor.shake_hands(request("GET", "/chat", visitor.headers)) }
    wait_until("all visitors to join") { visitors.last.receive["visitors"] == 4 }

    visitors.first.send_text("hello \u{1f44b}")
    visitors.each { |visitor| assert_equal "hello \u{1f44b}", visitor.receive_until { |message| message["text"].start_with?("hello") }["text"] }
    visitors[1].send_text("x" * 3000)
    assert_equal 3000, visitors[2].receive_until { |message| message["text"].size > 100 }["text"].size

    visitors[0].close
    assert visitors[0].receive_close, "a close frame is returned"
    visitors[1].connection.close
    assert_equal 2, visitors[2].receive_until { |message| message["text"].end_with?("left") && message["visitors"] == 2 }["visitors"]
    assert_status 200, get("/", to: own), "visitors occupy no threads"
  end

  # The client side of a WebSocket (RFC 6455).
  class Visitor
    MAGIC = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

    attr_reader :connection

    def initialize(connection)
      @connection = connection
      @key = SecureRandom.base64(16)
    end

    def headers
      { "Connection" => "Upgrade", "Upgrade" => "websocket", "Sec-WebSocket-Key" => @key, "Sec-WebSocket-Version" => "13" }
    end

    def shake_hands(bytes)
      response = @connection.write(bytes).read_response
      raise Minitest::Assertion, "no handshake:\n#{response.raw_head}" unless response.status == 101

      expected = Digest::SHA1.base64digest(@key + MAGIC)
      raise Minitest::Assertion, "wrong accept key" unless response["sec-websocket-accept"] == expected
    end

    def send_text(text)
      frame(1, text.b)
    end

    def close
      frame(8, [1000].pack("n"))
    end

    def receive
      opcode, payload = receive_frame
      raise Minitest::Assertion, "frame #{opcode}: #{payload.inspect}" unless opcode == 1

      JSON.parse(payload.force_encoding("UTF-8"))
    end

    def receive_until
      loop { receive.then { |message| return message if yield message } }
    end

    # Skips messages received before the close frame.
    def receive_close
      loop { return true if receive_frame.first == 8 }
    end

    def receive_frame
      first, second = @connection.read_exactly(2).bytes
      length = second & 0x7f
      length = @connection.read_exactly(2).unpack1("n") if length == 126
      length = @connection.read_exactly(8).unpack1("Q>") if length == 127
      [first & 0x0f, @connection.read_exactly(length)]
    end

    private

    # A masked frame, as clients must send them.
    def frame(opcode, payload)
      mask = SecureRandom.bytes(4)
      masked = payload.bytes.each_with_index.map { |byte, i| byte ^ mask.getbyte(i % 4) }.pack("C*")
      length = payload.bytesize < 126 ? [0x80 | payload.bytesize].pack("C") : [0x80 | 126, payload.bytesize].pack("Cn")
      @connection.write([0x80 | opcode].pack("C") + length + mask + masked)
    end
  end
end
