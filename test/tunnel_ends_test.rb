# frozen_string_literal: true

# The end of the server or of a worker, seen by slow clients of connections that the app has taken over: what the app has sent arrives, in all
# versions of HTTP and whatever the client sends meanwhile; clients that only hold such a connection do not delay the end.

require "support/tls_case"
require "support/web_socket"

class TunnelEndsTest < TlsCase
  parallel!

  # Fills the connection until it takes no more, writes how much that was into a file, and goes on in its own way.
  APP = <<~'RUBY'
    require "digest/sha1"
    fill = lambda do |io, name|
      count = 0
      piece = "0123456789abcdef" * 4096
      loop do
        written = io.write_nonblock(piece, exception: false)
        break if written == :wait_writable && !io.wait_writable(0.5)
        count += written unless written == :wait_writable
      end
      File.write("#{ENV['COUNTS']}/#{name}.new", count.to_s)
      File.rename("#{ENV['COUNTS']}/#{name}.new", "#{ENV['COUNTS']}/#{name}")
    end
    run(lambda do |env|
      name = env["PATH_INFO"].delete("/")
      accept = [Digest::SHA1.digest("#{env['HTTP_SEC_WEBSOCKET_KEY']}258EAFA5-E914-47DA-95CA-C5AB0DC85B11")].pack("m0")
      [101, { "connection" => "Upgrade", "upgrade" => "websocket", "sec-websocket-accept" => accept }, lambda do |io|
        case name
        when /idle/ then io.write("x"); Thread.new { sleep }; Thread.new { io.read }
        when /half/ then io.write("x"); io.close_write; Thread.new { io.read; sleep }
        when /closed/ then fill.(io, name); io.close
        else Thread.new { fill.(io, name); sleep }
        end
      end]
    end)
  RUBY

  def setup
    super
    @sockets = []
    @counts = Dir.mktmpdir
  end

  def teardown
    @sockets.each(&:close)
    super
    FileUtils.rm_rf(@counts)
  end

  def serving
    start(app: APP, workers: 1, threads: "1:1", binds: WebSocket::BINDS, files: pair("own", "localhost", "127.0.0.1"),
          settings: { timeouts: { shutdown: 15 } }, env: { "COUNTS" => @counts })
  end

  def open_socket(version, own, path)
    skip "needs Go" if version == "HTTP/3" && !QuicGo.client
    WebSocket::KINDS.fetch(version).new(own, path).tap { |socket| @sockets << socket }
  end

  # The bytes that the app has written until its side was full.
  def written(name)
    wait_until("the app has filled the connection", within: 20) { File.exist?("#{@counts}/#{name}") }
    File.read("#{@counts}/#{name}").to_i
  end

  def dead?(pid)
    File.read("/proc/#{pid}/stat").match?(/\) Z/)
  rescue Errno::ENOENT
    true
  end

  # Lets the client read, and returns the number of bytes that it gets, without a Close frame of the server.
  def read_all(socket)
    if socket.respond_to?(:client)
      socket.client.write(socket.client.window_update(0, 1 << 26) + socket.client.window_update(socket.stream, 1 << 26))
    end
    socket.read_to_end.delete_suffix("\x88\x02\x03\xF4".b).bytesize
  end

  WebSocket::KINDS.each_key do |version|
    %w[open closed].each do |name|
      it "sends slow clients what the app has sent, after TERM and the worker's end (#{version}, #{name})" do
        own = serving
        socket = open_socket(version, own, "/#{name}")
        count = written(name)
        worker = own.stats["workers"].first["pid"]
        own.signal("TERM")
        assert wait_until("the worker has ended", within: 10) { dead?(worker) }
        # Bytes of the client cannot reach the app any more.
        3.times { socket.write("x" * 100) && sleep(0.5) }
        assert_equal count, read_all(socket)
        socket.close
        own.wait_exit
      end
    end

    %w[idle half].each do |name|
      it "ends at once when clients only hold a tunnel (#{version}, #{name})" do
        own = serving
        socket = open_socket(version, own, "/#{name}")
        assert_equal "x", socket.read_exactly(1)
        before = now
        own.signal("TERM")
        own.wait_exit
        assert_operator now - before, :<, 10, "timeouts.shutdown is 15 s"
      end
    end
  end
end
