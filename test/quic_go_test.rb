# frozen_string_literal: true

# HTTP/3 by quic-go's client (https://github.com/quic-go/quic-go): what Chromium, h3 and quinn do not share with it is everything.
# Its source is test/quic_go; `go build` needs its modules once (script/setup test).

require "digest"
require "json"
require "open3"
require "tmpdir"
require "support/tls_case"

class QuicGoTest < TlsCase
  in_turn!

  APP = <<~'RUBY'
    run lambda { |env|
      body = env["rack.input"]&.read.to_s
      case env["PATH_INFO"]
      when "/big" then [200, {}, ["b" * 20_000_000]]
      when "/stream" then [200, {}, Enumerator.new { |y| 50.times { |n| y << "#{n}," * 1000 } }]
      else [200, { "x-said" => "#{env['SERVER_PROTOCOL']} #{env['REQUEST_METHOD']} #{env['CONTENT_LENGTH'].inspect} #{body.bytesize}" }, ["hello"]]
      end
    }
  RUBY

  # The client, built once for all tests; nil if that is not possible here.
  def self.client
    return @client if defined?(@client)

    @client = nil
    return unless system("go version", out: File::NULL, err: File::NULL)

    dir = Dir.mktmpdir("quic-go")
    Minitest.after_run { FileUtils.remove_entry(dir) }
    out, status = Open3.capture2e({ "GOTOOLCHAIN" => "local" }, "timeout", "300", "go", "build", "-o", "#{dir}/client", ".", chdir: File.join(__dir__, "quic_go"))
    status.success? ? @client = "#{dir}/client" : warn("quic-go's client cannot be built:\n#{out}")
    @client
  end

  def setup
    super
    skip "needs Go and quic-go: script/setup test" unless self.class.client
  end

  def own
    @own ||= secure(app: APP, args: ["--log-requests"])
  end

  def ask(path, *flags)
    out, err, status = Open3.capture3("timeout", "60", self.class.client, *flags.map(&:to_s), "https://127.0.0.1:#{own.port}#{path}")
    assert status.success?, err
    JSON.parse(out)
  end

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
end
