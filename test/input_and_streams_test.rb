# frozen_string_literal: true

# Methods of `rack.input`, of a hijacked socket and of files that apps and libraries call, as with other servers; and the end of responses
# that the app leaves incomplete.

require "stringio"
require "support/http2_case"

class InputAndStreamsTest < Http2Case
  parallel!

  # The query contains a line of code that apps and libraries use; the response is its value.
  APP = <<~'RUBY'
    require "net/http"
    require "tempfile"
    plain = ->(value) { [200, { "content-type" => "text/plain" }, [value.inspect]] }
    text = { "content-type" => "text/plain" }
    ASKED = Queue.new
    BACKEND = TCPServer.new("127.0.0.1", 0)
    Firebrick.after_fork do
      Thread.new do
        loop do
          client = BACKEND.accept
          Thread.new do
            ASKED << client.gets
            client.write("HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n")
            loop { client.write("x" * 10_000); sleep 0.002 }
          rescue SystemCallError
            client.close
          end
        end
      end
    end
    # A library that makes another exception of what it meets.
    class Wrapped < StandardError; end
    backend = lambda do |&block|
      uri = URI("http://127.0.0.1:#{BACKEND.local_address.ip_port}/")
      Net::HTTP.start(uri.host, uri.port) { |http| http.request(Net::HTTP::Get.new(uri)) { |answer| answer.read_body(&block) } }
    end
    RAISED = Queue.new
    # Writes, until that raises; what it is, an app may rescue as of any socket.
    endless = lambda do |stream, &write|
      loop { write.call("x" * 1_000); sleep 0.002 }
    rescue Errno::EPIPE, Errno::ECONNRESET => error
      RAISED << error.class
      raise
    ensure
      stream.close
    end
    each = ->(&block) { Object.new.tap { |body| body.define_singleton_method(:each) { |&write| block.call(write) } } }
    run lambda { |env|
      input = env["rack.input"]
      case env["PATH_INFO"]
      when "/null"
        names = StringIO.public_instance_methods - Object.public_instance_methods - %i[fcntl]
        missing = names.reject { |name| input.respond_to?(name) }
        raised = ->(&block) { block.call rescue $!.class }
        input.sync = true
        plain.call([missing, input.string, input.each_byte {}.nil?, raised.call { input.readpartial(1) }, raised.call { input.readline }, input.readlines,
                    input.flush.nil?, raised.call { input.readbyte }, input.read, input.read(1), input.each_char.to_a, input.length, input.eof?])
      when "/large"
        path = input.path
        plain.call([input.length, input.size, path.nil? || File.size(path), path.nil? || File.read(path, 3), input.unlink.class, input.read.bytesize, File.basename(path.to_s).empty?])
      when "/twice"
        first, second = env["rack.hijack"].call, Thread.new { env["rack.hijack"].call }.value
        first.write("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n#{[first.equal?(second), first.equal?(env['rack.hijack_io'])]}")
        first.close
        [200, {}, []]
      when "/socket"
        io = env["rack.hijack"].call
        io.setsockopt(Socket::IPPROTO_TCP, Socket::TCP_NODELAY, 1)
        io.setsockopt(:TCP, :NODELAY, true)
        io.setsockopt(Socket::SOL_SOCKET, Socket::SO_KEEPALIVE, true)
        seen = [io.peeraddr.values_at(0, 1, 3), io.remote_address.ip_port, io.getsockopt(:TCP, :NODELAY).bool, io.addr[0]]
        io.write("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n#{seen.inspect}")
        io.close
        [200, {}, []]
      when "/sought" then [200, text, File.open("ten.txt").tap { |file| file.seek(4) }]
      when "/read" then [200, text, File.open("ten.txt").tap(&:gets)]
      when "/tempfile" then [200, text, Tempfile.new.tap { |file| file.write("0123456789"); file.flush; file.seek(7) }]
      when "/closed" then [200, text, File.open("ten.txt") { |file| file }]
      when "/raises" then [200, text, ->(stream) { stream.write("half"); raise "on purpose" }]
      when "/raises-partial" then [200, text.merge("rack.hijack" => ->(stream) { stream.write("half"); raise "on purpose" }), []]
      when "/killed" then [200, text, ->(stream) { stream.write("half"); Process.kill("KILL", Process.pid) }]
      when "/killed-later" then [200, text, ->(stream) { Thread.new { stream.write("half"); sleep 0.2; Process.kill("KILL", Process.pid) } }]
      when "/dies" then [200, text, ->(stream) { stream.write("half"); Thread.current.kill }]
      when "/complete" then [200, text, ->(stream) { stream.write("whole"); stream.close; sleep 0.1 }]
      when "/half-closed" then [200, text, ->(stream) { stream.write("whole"); stream.close_write; sleep 0.1; stream.close }]
      when "/copied" then [200, text, ->(stream) { copy = stream.dup; stream.close; copy.write("whole"); copy.close }]
      when "/early" then [200, text, ->(stream) { stream.write("whole"); stream.close; sleep 5 }]
      when "/proxy" then [200, text, each.call { |write| backend.call { |part| write.call(part) } }]
      when "/proxy-wrapped" then [200, text, each.call { |write| begin; backend.call { |part| write.call(part) }; rescue Exception; raise Wrapped, "a library"; end }]
      when "/proxy-waits" then backend.call { |part| }
      when "/proxy-stream" then [200, text, ->(stream) { backend.call { |part| stream.write(part) }; stream.close }]
      when "/proxy-copied" then [200, text, ->(stream) { backend.call { |part| IO.copy_stream(StringIO.new(part), stream) }; stream.close }]
      when "/proxy-partial" then [200, text.merge("rack.hijack" => ->(stream) { backend.call { |part| stream << part }; stream.close }), []]
      when "/proxy-partial-wrapped"
        [200, text.merge("rack.hijack" => ->(stream) { begin; backend.call { |part| stream.print(part) }; rescue Exception; raise Wrapped, "a library"; end }), []]
      when "/proxy-hijacked"
        io = env["rack.hijack"].call
        io.write("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
        begin
          backend.call { |part| io.write(part) }
        ensure
          io.close
        end
      when "/written" then [200, text, ->(stream) { endless.call(stream) { |part| stream.write(part) } }]
      when "/sent" then [200, text, ->(stream) { endless.call(stream) { |part| stream.send(part, 0) } }]
      when "/copied-to" then [200, text, ->(stream) { endless.call(stream) { |part| IO.copy_stream(StringIO.new(part), stream) } }]
      when "/copied-file" then [200, text, ->(stream) { endless.call(stream) { |part| IO.copy_stream("ten.txt", stream) } }]
      when "/written-hijacked"
        io = env["rack.hijack"].call
        io.write("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
        endless.call(io) { |part| io.write(part) }
      when "/raised" then plain.call(Array.new(RAISED.size) { RAISED.pop })
      when "/asked" then plain.call(Array.new(ASKED.size) { ASKED.pop }.length)
      else plain.call("ok")
      end
    }
  RUBY

  FILES = { "ten.txt" => "012\n456789" }.freeze

  shared_server(app: APP, threads: "5:5", files: FILES)

  it "gives requests without a body an input that has what a StringIO has" do
    firebrick_only
    expected = [[], "", false, EOFError, EOFError, [], false, EOFError, "", nil, [], 0, true]
    assert_equal expected.inspect, post("/null", "").body
    assert_equal expected.inspect, get("/null").body
  end

  it "gives large bodies an input that has what a Tempfile has" do
    firebrick_only
    assert_equal [300_000, 300_000, 300_000, "yyy", TrueClass, 300_000, false].inspect, post("/large", "y" * 300_000).body
  end

  it "gives the same socket for each call of rack.hijack" do
    firebrick_only
    assert_equal "[true, true]", get("/twice").body
  end

  it "gives a hijacked socket the addresses and options of the client's connection" do
    firebrick_only
    connection = connect(server).write(request("GET", "/socket"))
    port = connection.local_port
    assert_equal [["AF_INET", port, "127.0.0.1"], port, true, "AF_INET"].inspect, connection.read_response.body
  end

  it "sends a file from where it stands" do
    firebrick_only
    assert_equal "456789", get("/sought").body
    assert_equal "456789", get("/read").body
    assert_equal "789", get("/tempfile").body
    assert_equal FILES["ten.txt"], get("/closed").body
  end

  # Reads until the connection ends.
  def all_of(path, to: server)
    connection = connect(to)
    connection.write(request("GET", path, "Connection" => "close"))
    [connection.read_to_end, connection.reset?]
  end

  def broken_off?(path, to: server)
    bytes, = all_of(path, to: to)
    bytes.include?("half") && !bytes.end_with?("0\r\n\r\n")
  end

  it "cuts a streaming response off when its app breaks off" do
    firebrick_only
    %w[/raises /raises-partial /dies].each { |path| assert broken_off?(path), path }
    %w[/complete /half-closed /copied /early].each do |path|
      bytes, = all_of(path)
      assert bytes.include?("whole") && bytes.end_with?("0\r\n\r\n"), "#{path}: #{bytes}"
    end
  end

  it "cuts a streaming response off when its worker dies" do
    firebrick_only
    own = start(app: APP, threads: "2:2", files: FILES)
    %w[/killed /killed-later].each { |path| assert broken_off?(path, to: own), path }
  end

  it "resets the stream of HTTP/2 when the app of a streaming response breaks off" do
    firebrick_only
    %w[/raises /raises-partial].each do |path|
      client = http2(server)
      stream = client.request(path)
      client.read_until("the end of #{path}") { client.answers[stream]&.over? }
      assert client.answers[stream].reset, "#{path} looks complete"
    end
  end

  PROXIES = %w[/proxy /proxy-wrapped /proxy-stream /proxy-copied /proxy-partial /proxy-partial-wrapped /proxy-hijacked].freeze
  WRITERS = %w[/written /sent /copied-to /copied-file /written-hijacked].freeze

  def leave_at(path, own, waits: false)
    connection = connect(own).write(request("GET", path))
    waits ? sleep(0.3) : connection.read_some
    connection.reset!
    wait_until("the request of #{path} to end") { own.stats["workers"].sum { |worker| worker["busy_threads"] }.zero? }
  end

  [{}, { fibers: 10 }].each do |settings|
    it "asks no backend twice for a client that leaves, and counts no failure, with #{settings.empty? ? 'threads' : 'fibers'}" do
      firebrick_only
      skip "fibers are CRuby's" unless settings.empty? || Server.cruby?
      own = start(app: APP, threads: "2:2", files: FILES, settings: settings)
      PROXIES.each do |path|
        leave_at(path, own)
        assert_equal "1", get("/asked", to: own).body, path
      end
      unless settings.empty?
        leave_at("/proxy-waits", own, waits: true)
        assert_equal "1", get("/asked", to: own).body
      end
      refute_match(/Wrapped|ClientGone|IOError|EPIPE|ECONNRESET/, own.stderr)
    end
  end

  it "tells apps on fibers of a client that leaves, also when what they wait for comes at the same time" do
    firebrick_only
    skip "fibers are CRuby's" unless Server.cruby?
    own = start(app: APP, threads: "2:2", files: FILES, settings: { fibers: 10 })
    5.times do |round|
      clients = Array.new(15) { connect(own).write(request("GET", "/proxy-waits")) }
      wait_until("all are served") { own.stats["workers"].sum { |worker| worker["busy_threads"] } == clients.size }
      sleep 0.1 + (0.01 * round)
      clients.each(&:reset!)
      wait_until("the requests to end") { own.stats["workers"].sum { |worker| worker["busy_threads"] }.zero? }
    end
  end

  it "raises where the app writes what a socket raises, which is no failure of the app, whichever method writes" do
    firebrick_only
    own = start(app: APP, threads: "2:2", files: FILES)
    WRITERS.each do |path|
      leave_at(path, own)
      assert_match(/\A\[Errno::E(?:PIPE|CONNRESET)\]\z/, get("/raised", to: own).body, path)
    end
    refute_match(/EPIPE|ECONNRESET|failed/, own.stderr)
  end
end
