# frozen_string_literal: true

# The resources that clients which do not read can occupy: descriptors, memory, files of uploads. However many there are, others are served, and a
# client that resumes gets everything.

require "open3"
require "support/http2_client"
require "support/quic_go"
require "support/tls_case"

class HeldTest < TlsCase
  parallel!

  LIMIT = 512
  LARGE = 2_000_000
  STRING = 900_000
  APP = <<~'RUBY'
    class Pieces
      def each = 60.times { yield "0123456789" * 1500 }
    end

    text = { "content-type" => "text/plain" }
    run lambda { |env|
      case env["PATH_INFO"]
      when "/file" then [200, text, File.open("large.bin", "rb")]
      when "/string" then [200, text, ["0123456789" * 90_000]]
      when "/chunked" then [200, text, Pieces.new]
      when "/upload"
        sleep 0.05 until File.exist?("gate")
        [200, text, [env["rack.input"].read.bytesize.to_s]]
      else [200, text, ["quick"]]
      end
    }
  RUBY

  def serve(binds: ["tcp://127.0.0.1:0?h2c=true"], open_files: LIMIT, threads: "5:5", files: {}, settings: {}, leaves: [])
    start(app: APP, files: { "large.bin" => "x" * LARGE }.merge(files), binds:, open_files:, threads:, leaves:,
          settings: { front_threads: 1, limits: { max_queue: 100_000 } }.merge(settings))
  end

  # A client that opens no window, and requests +paths+.
  def stalled(own, paths, window: 0)
    Http2Client.new(own.address, settings: { 4 => window }).tap do |client|
      @connections << client
      paths.each { |path| client.request(path) }
    end
  end

  def descriptors(own)
    Dir.children("/proc/#{own.pid}/fd").size
  end

  # Bytes of memory files that the front holds for responses.
  def shared_memory(own)
    Dir.glob("/proc/#{own.pid}/fd/*").sum do |path|
      File.readlink(path).start_with?("/memfd:firebrick-body") ? File.stat(path).blocks * 512 : 0
    rescue SystemCallError
      0
    end
  end

  # Asserts that others are served while the block's clients are there.
  def assert_others_served(own, most: LIMIT * 3 / 4)
    clients = yield
    20.times do
      assert_equal "quick", get("/", to: own).body
      assert_equal LARGE, get("/file", to: own).body.bytesize
      assert_operator descriptors(own), :<, most
      sleep 0.05
    end
    refute_match(/out of descriptors|Too many open files/, own.stderr)
    clients
  end

  it "serves others whatever files clients of HTTP/2 do not take" do
    own = serve
    assert_others_served(own) { Array.new(30) { stalled(own, ["/file"] * 100) } }
  end

  it "serves others whatever strings clients of HTTP/2 do not take" do
    own = serve
    assert_others_served(own) { Array.new(10) { stalled(own, ["/string"] * 100) } }
  end

  it "serves others whatever chunked responses clients of HTTP/2 do not take" do
    own = serve(settings: { limits: { response_memory: "16KiB", max_queue: 100_000 } })
    assert_others_served(own) { Array.new(10) { stalled(own, ["/chunked"] * 100) } }
  end

  it "serves others whatever files of public/ clients of HTTP/2 do not take" do
    names = Array.new(1000) { |n| "file#{n}.txt" }
    own = serve(files: names.to_h { |name| ["public/#{name}", "x" * 20_000] }, settings: { files: { serve_public: "always" } })
    assert_others_served(own) { names.each_slice(100).map { |some| stalled(own, some.map { |name| "/#{name}" }) } }
  end

  it "serves others whatever files clients of HTTP/1 do not take" do
    own = serve
    clients = assert_others_served(own, most: LIMIT) do
      Array.new(300) { connect(own, receive_buffer: 8192).write(request("GET", "/file")) }
    end
    # Responses that the server could not hold were cut off.
    ends = clients.count { |client| client.socket.wait_readable(0) && !complete?(client) }
    assert_operator ends, :>, 0
  end

  it "serves others whatever files clients of HTTP/3 do not take" do
    skip "needs Go" unless QuicGo.client
    own = serve(binds: ["ssl://127.0.0.1:0?cert=own.pem&key=own.key", "tcp://127.0.0.1:0"], files: pair("own", "localhost", "127.0.0.1"))
    pids = Array.new(8) { spawn(*QuicGo.command(own, "/file", "-rush", "-count", 100, "-read", 0), out: File::NULL, err: File::NULL) }
    plain = own.listeners.find { |one| one.start_with?("http://") }[/\d+\z/].to_i
    wait_until("stalled responses") { descriptors(own) > 60 }
    20.times do
      client = Connection.new(["127.0.0.1", plain]).write(request("GET", "/file"))
      assert_equal LARGE, client.read_response.body.bytesize
      client.close
      assert_operator descriptors(own), :<, LIMIT * 3 / 4
      sleep 0.05
    end
    refute_match(/out of descriptors|Too many open files/, own.stderr)
  ensure
    pids&.each do |pid|
      Process.kill(:KILL, pid)
      Process.wait(pid)
    end
  end

  it "lets the requests of a client wait whose responses hold much, and answers them all as it takes them" do
    # Responses already with workers come on top.
    own = serve(open_files: nil, threads: "2:2")
    clients = Array.new(3) { stalled(own, ["/string"] * 100) }
    wait_until("memory that is held") { shared_memory(own) > 30 << 20 }
    30.times do
      assert_operator shared_memory(own), :<, 3 * (26 << 20)
      assert_equal "quick", get("/", to: own).body
      sleep 0.05
    end
    client = clients.pop
    client.discard { |stream, bytes| client.write(client.window_update(stream, bytes.bytesize)) }
    client.write(client.settings_frame({ 4 => 1 << 20 }))
    client.read_until("all responses", within: 60) { client.answers.size == 100 && client.answers.each_value.all?(&:over?) }
    assert_equal [[200, nil]], client.answers.each_value.map { |answer| [answer.status, answer.reset] }.uniq
  end

  it "ends streams whose own window stays closed, although others of their connection move" do
    own = serve(open_files: nil, settings: { timeouts: { send: "2s" } })
    client = stalled(own, ["/string"] * 50)
    moving = 1
    stop = Clock.now + 8
    while Clock.now < stop
      client.write(client.window_update(moving, 4_096))
      client.read_frame(0.2)
    end
    assert_equal [nil, :cancel], [client.answers[moving].reset, client.answers[3].reset]
    wait_until("nothing held for the others") { shared_memory(own) <= STRING + 4_096 }
  end

  it "has uploads wait unread when as many wait for the app as may have a file" do
    own = serve(threads: "1:1", files: { "public/robots.txt" => "robots" }, leaves: ["gate"],
                settings: { timeouts: { queue: "30s" }, files: { serve_public: "always" } })
    body = "u" * 70_000
    clients = Array.new(12) do
      Http2Client.new(own.address).tap do |client|
        @connections << client
        # The client acknowledges SETTINGS at once: on a busy machine it may be late when its turn to read comes.
        client.read_until("SETTINGS") { client.settings }
        55.times { client.request("/upload", body:) }
      end
    end
    20.times do
      assert_operator descriptors(own), :<, LIMIT / 2
      assert_equal "robots", get("/robots.txt", to: own).body
      sleep 0.05
    end
    refute_match(/out of descriptors|Too many open files/, own.stderr)
    File.write(own.path("gate"), "")
    answers = clients.flat_map do |client|
      client.read_until("all answers", within: 60) { client.answers.size == 55 && client.answers.each_value.all?(&:over?) }
      client.answers.values
    end
    taken, refused = answers.partition { |answer| answer.status == 200 }
    assert_equal ["70000"], taken.map(&:body).uniq
    assert(refused.all? { |answer| answer.status == 503 && answer["retry-after"] }, refused.map(&:result).tally.to_s)
    assert_operator taken.size, :>=, LIMIT / 8
  end

  private

  def complete?(client)
    client.read_response.body.bytesize == LARGE
  rescue TruncatedResponse, SystemCallError
    false
  end
end
