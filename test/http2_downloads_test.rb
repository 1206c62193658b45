# frozen_string_literal: true

# Large bodies over HTTP/2, both ways, in bounded memory and whole, whatever the windows are and however slowly the client reads.

require "support/http2_case"
require "support/site_server"
require "openssl"

class Http2DownloadsCase < Http2Case
  # A transfer of 1 GiB takes a while on a slow machine.
  SIZE = Integer(ENV.fetch("TEST_DOWNLOAD_MIB", "1024")) << 20
  # Transfers that also take the worker's time have a quarter of the size: still several times the memory that they may use.
  WORKED = [SIZE >> 22, 1].max
  BLOCK = (0...(1 << 20)).map { |i| (i * 2_654_435_761 >> 13) & 0xff }.pack("C*").freeze
  # Memory of the front that a transfer may use.
  BOUND = 48 << 20

  APP = <<~'RUBY'
    require "openssl"
    BLOCK = (0...(1 << 20)).map { |i| (i * 2_654_435_761 >> 13) & 0xff }.pack("C*").freeze

    class Blocks
      def initialize(count) = @count = count
      def each = @count.times { yield BLOCK }
    end

    text = { "content-type" => "application/octet-stream" }
    run lambda { |env|
      case env["PATH_INFO"]
      when %r{\A/blocks/(\d+)\z} then [200, text, Blocks.new($1.to_i)]
      when %r{\A/sized/(\d+)\z} then [200, text.merge("content-length" => ($1.to_i << 20).to_s), Blocks.new($1.to_i)]
      when "/digest"
        digest, buffer = OpenSSL::Digest.new("SHA256"), +""
        digest << buffer while env["rack.input"].read(1 << 20, buffer)
        [200, text, [digest.hexdigest]]
      else [200, text, ["quick"]]
      end
    }
  RUBY

  shared_server app: APP, threads: "4:4", settings: { limits: { max_body: "4GiB" } }

  # Reads a body of that many bytes, giving windows of +window+ bytes as they are used up. Returns its digest.
  def download(client, stream, size, window: nil, pause: nil)
    digest = OpenSSL::Digest.new("SHA256")
    got = used = 0
    client.discard do |_, bytes|
      digest << bytes
      got += bytes.bytesize
      used += bytes.bytesize
    end
    until client.answers[stream].over?
      client.read_frame or flunk "the connection ended after #{got} of #{size} bytes"
      next unless used.positive? && used >= (window || (64 << 20)) / 2

      client.write(client.window_update(0, used) + client.window_update(stream, used))
      used = 0
      sleep pause if pause
    end
    assert_equal size, got
    digest.hexdigest
  end

  def expected(mebibytes)
    OpenSSL::Digest.new("SHA256").tap { |digest| mebibytes.times { digest << BLOCK } }.hexdigest
  end

  def assert_memory(own, bound: BOUND)
    before = front_memory(own)
    most = 0
    stop = false
    watch = Thread.new do
      until stop
        most = [most, front_memory(own)].max
        sleep 0.05
      end
    end
    yield
    assert_operator most - before, :<, bound, "memory of the front"
  ensure
    stop = true
    watch&.join
  end
end

# Alone: gibibytes pass through this process, and beside it the clients of other tests would be too slow for their servers.
class Http2DownloadsTest < Http2DownloadsCase
  it "sends a file of 1 GiB in bounded memory" do
    own = SiteServer.new(files: { "public_html/index.html" => "home" }, rules: { root: "public_html/" }, binds: [BIND])
    @own_servers << own
    File.open(own.path("public_html/large.bin"), "wb") { |file| (SIZE >> 20).times { file.write(BLOCK) } }
    own.start
    wanted = expected(SIZE >> 20)
    client = http2(own)
    fetch("/", to: own)
    assert_memory(own) { assert_equal wanted, download(client, client.request("/large.bin"), SIZE) }
  end

  it "sends hundreds of MiB from an app in bounded memory" do
    # Computed first: it takes long on a busy machine, and the client has to acknowledge SETTINGS in time.
    wanted = expected(WORKED)
    client = http2
    fetch("/")
    assert_memory(server) { assert_equal wanted, download(client, client.request("/blocks/#{WORKED}"), WORKED << 20) }
  end

  it "receives hundreds of MiB in bounded memory" do
    client = http2
    fetch("/")
    assert_memory(server) do
      digest = upload(client, WORKED)
      assert_equal expected(WORKED), digest
    end
  end

  private

  # Sends that many blocks as the server's windows allow. Returns the app's digest of them.
  def upload(client, mebibytes)
    windows = { 0 => 65_535 }
    client.define_singleton_method(:take) do |frame|
      windows[frame.stream] += frame.payload.unpack1("N") if frame.type == :window_update && windows.key?(frame.stream)
      super(frame)
    end
    client.read_until("SETTINGS") { client.settings }
    stream = client.request("/digest", method: "POST", body: :open)
    windows[stream] = client.settings[4] || 65_535
    mebibytes.times do |number|
      BLOCK.scan(/.{1,16384}/mn).each_with_index do |piece, i|
        client.read_frame while windows.values.min < piece.bytesize
        windows.transform_values! { |room| room - piece.bytesize }
        client.write(client.data(stream, piece, end_stream: number == mebibytes - 1 && i == 63))
      end
    end
    client.answer(stream).body
  end
end

# In turn, because the memory of the server that they share is measured.
class Http2WindowsTest < Http2DownloadsCase
  in_turn!

  [1, 100, 16_384, 1 << 20].each do |window|
    it "sends to a client with windows of #{window} bytes" do
      size = window == 1 ? 2000 : 1 << 20
      client = http2(settings: { 4 => window })
      path = window == 1 ? "/" : "/sized/1"
      wanted = window == 1 ? OpenSSL::Digest.hexdigest("SHA256", "quick") : expected(1)
      stream = client.request(path)
      length = window == 1 ? 5 : size
      # Half a window at a time, at least one byte.
      assert_equal wanted, download(client, stream, length, window: window)
    end
  end

  it "serves others on the same connection while one body waits for its window" do
    client = http2(settings: { 4 => 65_535 })
    held = client.request("/blocks/50")
    client.read_until("a window is used up") { client.answers[held].body.bytesize == 65_535 }
    20.times { assert_equal "quick", client.get("/quick").body }
    client.write(client.rst_stream(held))
    assert client.alive?
  end

  it "sends whole bodies to clients that read slowly" do
    clients = Array.new(4) { http2(settings: { 4 => 200_000 }, receive_buffer: 16_384) }
    assert_memory(server, bound: 96 << 20) do
      threads = clients.map { |client| Thread.new { download(client, client.request("/sized/5"), 5 << 20, window: 200_000, pause: 0.02) } }
      assert_equal [expected(5)], threads.map(&:value).uniq
    end
  end

  it "sends ten bodies at a time over one connection, each of them whole" do
    client = http2(settings: { 4 => 1 << 20 })
    digests = Hash.new { |all, stream| all[stream] = OpenSSL::Digest.new("SHA256") }
    streams = Array.new(10) { client.request("/blocks/5") }
    client.discard do |stream, bytes|
      digests[stream] << bytes
      client.write(client.window_update(stream, bytes.bytesize) + client.window_update(0, bytes.bytesize)) unless bytes.empty?
    end
    client.read_until("all of them", within: 60) { streams.all? { |stream| client.answers[stream].over? } }
    assert_equal [expected(5)], streams.map { |stream| digests[stream].hexdigest }.uniq
  end
end
