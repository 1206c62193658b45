# frozen_string_literal: true

# Transfers over encrypted connections: uploads and downloads in bounded memory, slow readers, hijacked connections,
# drains; and a flood of handshakes beside a client that is served.

require "support/tls_case"

class TlsTransferCase < TlsCase
  MIB = 1 << 20
  SIZE = Integer(ENV.fetch("TEST_UPLOAD_MIB", "200")) * MIB
  PUBLIC = { files: { public: "always" } }.freeze
  APP = <<~'RUBY'
    require "openssl"
    BIG = Class.new do
      def initialize(size) = @size = size
      def each
        (@size / 65_536).times { |i| yield((i % 256).chr * 65_536) }
      end
    end
    run lambda { |env|
      case env["PATH_INFO"]
      when "/digest"
        sum = OpenSSL::Digest.new("SHA256")
        while (piece = env["rack.input"].read(65_536))
          sum << piece
        end
        [200, {}, [sum.hexdigest]]
      when "/stream" then [200, {}, BIG.new(Integer(env["QUERY_STRING"]))]
      when "/string" then [200, {}, ["s" * Integer(env["QUERY_STRING"])]]
      when "/slow"
        File.write("entered.log", "")
        sleep 0.02 until File.exist?("gate.log")
        [200, {}, ["slow"]]
      when "/hijack"
        io = env["rack.hijack"].call
        Thread.new do
          io.write("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n")
          while (line = io.gets)
            io.write("echo #{line}")
          end
          io.close
        end
        [200, {}, []]
      else [200, {}, ["hello"]]
      end
    }
  RUBY

  def streamed(size)
    digest = OpenSSL::Digest.new("SHA256")
    (size / 65_536).times { |i| digest << (i % 256).chr.b * 65_536 }
    digest.hexdigest
  end

  # Reads a response's body as it comes. Returns its digest.
  def drained(connection)
    response = connection.read_head
    assert_status 200, response
    digest = OpenSSL::Digest.new("SHA256")
    left = response["content-length"]&.to_i
    return OpenSSL::Digest.hexdigest("SHA256", connection.read_body(response).to_s) unless left

    while left.positive?
      piece = connection.read_some
      digest << piece
      left -= piece.bytesize
    end
    digest.hexdigest
  end
end

# Alone: hundreds of MiB pass through this process, and the flood of handshakes takes all of a processor.
class TlsTransferTest < TlsTransferCase
  it "uploads and downloads hundreds of MiB in bounded memory" do
    file = Random.new(1).bytes(MIB) * (SIZE / MIB)
    own = secure(app: APP, files: { "public/big.bin" => file }, settings: PUBLIC)
    fetch(own)
    before = own.pss
    most = before
    watcher = Thread.new { loop { most = [most, own.pss].max and sleep 0.2 } }
    expected = OpenSSL::Digest.hexdigest("SHA256", file)
    upload = dial(own, deadline: 120)
    upload.write("POST /digest HTTP/1.1\r\nHost: localhost\r\nContent-Length: #{file.bytesize}\r\n\r\n")
    (SIZE / MIB).times { |i| upload.write(file.byteslice(i * MIB, MIB)) }
    assert_equal expected, upload.read_response.body
    download = dial(own, deadline: 120)
    download.write(request("GET", "/big.bin"))
    assert_equal expected, drained(download)
    watcher.kill
    assert_operator most - before, :<, 96 * MIB, "memory grew by #{(most - before) / MIB} MiB"
  end

  it "serves others during a flood of handshakes" do
    own = secure(app: APP, settings: { front_threads: 1 })
    served = dial(own)
    stop = false
    clients = Array.new(3) { Thread.new { dial(own).close until stop } }
    assert(wait_until { own.stats.dig("tls", "full") > 50 })
    waits = Array.new(50) do
      begun = now
      served.write(request("GET", "/"))
      assert_status 200, served.read_response
      now - begun
    end
    stop = true
    clients.each(&:join)
    assert_operator waits.sort[25], :<, 0.5, "the median wait"
  end
end

class TlsReadersTest < TlsTransferCase
  parallel!

  it "sends large responses of the app as they are" do
    own = secure(app: APP)
    connection = dial(own, deadline: 60)
    [70_000, 1_000_000, 20_000_000].each do |size|
      connection.write(request("GET", "/string?#{size}"))
      assert_equal "s" * size, connection.read_response.body
    end
    connection.write(request("GET", "/stream?#{32 * MIB}"))
    assert_equal streamed(32 * MIB), OpenSSL::Digest.hexdigest("SHA256", connection.read_response.body)
    assert_alive connection
  end

  # Responses end while the socket is full: data buffered by the encryption must follow without another request.
  { "a string" => "/string?20971520", "a stream" => "/stream?20971520", "a file" => "/big.bin" }.each do |kind, path|
    it "holds nothing of #{kind} back for a slow reader" do
      file = Random.new(1).bytes(20 * MIB)
      own = secure(app: APP, files: { "public/big.bin" => file }, settings: PUBLIC)
      slow = dial(own, receive_buffer: 65_536, deadline: 60)
      slow.write(request("GET", path))
      sleep 0.5
      assert_status 200, fetch(own)
      body = slow.read_response.body
      case kind
      when "a string" then assert_equal "s" * 20 * MIB, body
      when "a stream" then assert_equal streamed(20 * MIB), OpenSSL::Digest.hexdigest("SHA256", body)
      else assert_equal OpenSSL::Digest.hexdigest("SHA256", file), OpenSSL::Digest.hexdigest("SHA256", body)
      end
      assert_alive slow
    end
  end

  it "hands connections over to the app" do
    own = secure(app: APP)
    taken = dial(own)
    taken.write(request("GET", "/hijack", "Connection" => "upgrade", "Upgrade" => "echo"))
    assert_equal 101, taken.read_head.status
    3.times do |i|
      taken.write("#{i}\n")
      assert_equal "echo #{i}\n", taken.read_through("\n")
    end
    taken.write("#{'x' * 300_000}\n")
    assert_equal 300_006, taken.read_through("\n").bytesize
  end

  it "finishes requests at TERM and tells clients the end" do
    own = secure(app: APP)
    idle = dial(own)
    idle.write(request("GET", "/"))
    idle.read_response
    busy = dial(own)
    busy.write(request("GET", "/slow"))
    assert(wait_until { File.exist?(own.path("entered.log")) })
    silent = connect(own)
    # The kernel hands over a silent connection after a second.
    wait_until("it to be accepted") { own.stats.dig("connections", "open") == 3 }
    own.signal("TERM")
    assert idle.ended?
    File.write(own.path("gate.log"), "")
    assert_equal "slow", busy.read_response.body
    assert_equal 0, own.wait_exit
    assert silent.ended?
    refute idle.reset?, "ended by close_notify"
  end

  it "makes room for new clients while others never finish their handshakes" do
    own = secure(app: APP, settings: { front_threads: 1, limits: { max_connections: 8 }, timeouts: { handshake: 60 } })
    stuck = Array.new(8) { connect(own).write("\x16\x03\x01".b) }
    assert(wait_until { own.stats.dig("connections", "open") == 8 })
    assert_status 200, fetch(own)
    assert stuck.first.ended?
    assert_equal 1, own.stats.dig("tls", "failed", "displaced")
  end
end
