# frozen_string_literal: true

# HTTP/3 with quic-go's client (https://github.com/quic-go/quic-go), an implementation that shares no code with Chromium, h3 and quinn.
# Its source is in test/quic_go; `go build` needs its modules once (script/setup test).

require "digest"
require "support/quic_go"
require "support/tls_case"

class QuicGoTest < TlsCase
  in_turn!

  APP = <<~'RUBY'
    run lambda { |env|
      body = env["rack.input"]&.read.to_s
      case env["PATH_INFO"]
      when "/big" then [200, {}, ["b" * 20_000_000]]
      when "/slow" then File.write("entered.log", ""); sleep 0.1 until File.exist?("gate.log"); [200, {}, ["late"]]
      when "/stream" then [200, {}, Enumerator.new { |y| 50.times { |n| y << "#{n}," * 1000 } }]
      else [200, { "x-said" => "#{env['SERVER_PROTOCOL']} #{env['REQUEST_METHOD']} #{env['CONTENT_LENGTH'].inspect} #{body.bytesize}" }, ["hello"]]
      end
    }
  RUBY

  def setup
    super
    skip "needs Go and quic-go: script/setup test" unless QuicGo.client
  end

  def own
    @own ||= secure(app: APP, args: ["--log-requests"])
  end

  def ask(path, *flags) = QuicGo.ask(own, path, *flags)

  def one(path, *flags)
    ask(path, *flags).first.tap { |answer| assert_nil answer["error"], answer["error"] }
  end

  it "is served" do
    answer = one("/")
    assert_equal [200, "HTTP/3.0", 5], answer.values_at("status", "protocol", "length")
    assert_equal ["HTTP/3 GET nil 0"], answer.dig("fields", "X-Said")
    head = one("/", "-method", "HEAD")
    assert_equal [200, 0], head.values_at("status", "length")
  end

  it "uploads, with and without a declared length, and with trailers" do
    assert_equal ['HTTP/3 POST "3000000" 3000000'], one("/", "-method", "POST", "-body", 3_000_000).dig("fields", "X-Said")
    [[], ["-trailer"]].each do |more|
      said = one("/", "-method", "PUT", "-body", 700_000, "-declared=false", *more).dig("fields", "X-Said").first
      assert_match(%r{\AHTTP/3 PUT \S+ 700000\z}, said)
    end
  end

  it "downloads" do
    assert_equal Digest::SHA256.hexdigest("b" * 20_000_000), one("/big")["sha256"]
    assert_equal Digest::SHA256.hexdigest((0...50).map { |n| "#{n}," * 1000 }.join), one("/stream")["sha256"]
  end

  it "has many requests at once on a connection" do
    answers = ask("/", "-count", 500)
    assert_equal [[200, 5, nil]], answers.map { |answer| answer.values_at("status", "length", "error") }.uniq
    assert_equal 1, own.stats.dig("tls", "full")
    assert_equal 500, own.stdout.scan(%r{"GET / HTTP/3" 200}).size
  end

  it "leaves nothing behind when it closes its connection" do
    5.times { one("/") }
    assert wait_until { own.stats.dig("connections", "open").to_i.zero? }, own.stats["connections"].inspect
    own.signal("TERM")
    assert_equal 0, own.wait_exit
  end
  # A client whose machine has lost power: it sends nothing more, not even the end of the connection.
  def vanish(path, *flags)
    read, write = IO.pipe
    pid = spawn(*QuicGo.command(own, path, *flags), out: write)
    write.close
    yield read
    Process.kill("KILL", pid)
  ensure
    [read, write].each(&:close)
    Process.wait(pid) if pid
  end

  # Without this, the server would wait until QUIC gives the connection up, after 30 s of silence.
  def ends_without_waiting
    own.signal("TERM")
    yield if block_given?
    took = elapsed { assert_equal 0, own.wait_exit(within: 60) }
    assert_operator took, :<, 15
  end

  def patient
    @own = secure(app: APP, args: ["--shutdown-timeout", "60s"])
  end

  it "ends although a client without a request has vanished" do
    patient
    vanish("/", "-hold") { |out| assert_equal "holding", out.gets&.chomp }
    ends_without_waiting
  end

  it "ends although a client has vanished in the middle of a download" do
    patient
    vanish("/big", "-read", 1_000_000) { |out| assert_equal "holding", out.gets&.chomp }
    ends_without_waiting
  end

  it "ends although the client of a response that comes later has vanished" do
    patient
    vanish("/slow") { assert(wait_until { File.exist?(own.path("entered.log")) }) }
    ends_without_waiting { File.write(own.path("gate.log"), "") }
  end

  it "waits at its end for a client that only reads slowly" do
    patient
    read, write = IO.pipe
    pid = spawn(*QuicGo.command(own, "/big", "-read", 1_000_000, "-pause", "5s"), out: write)
    write.close
    assert_equal "paused", read.gets&.chomp
    own.signal("TERM")
    answer = JSON.parse(read.read).first
    assert_equal [20_000_000, nil], answer.values_at("length", "error")
    assert_equal 0, own.wait_exit
  ensure
    [read, write].compact.each(&:close)
    Process.wait(pid) if pid
  end
end
