# frozen_string_literal: true

# WebSockets whose worker is replaced are closed with status 1012 (service restart), between two frames. Other connections that an app has taken over
# end as the app left them.

require "support/case"

class WebsocketCloseTest < Case
  parallel!

  RESTART = "\x88\x02\x03\xF4".b
  # Sends the data that the client has requested, and then nothing until the client ends the connection.
  FIRST = {
    "frames" => "\x81\x02hi\x89\x00\x01\x03one".b, "half" => "\x81\x05he".b, "nothing" => "".b,
    "long" => "\x82\x7E\x01\x00".b + ("x" * 256), "close" => "\x88\x02\x03\xE8".b
  }.freeze
  APP = "FIRST = Marshal.load(#{Marshal.dump(FIRST).inspect}.b)\n" + <<~'RUBY'
    run(lambda do |env|
      way, first = env["PATH_INFO"].delete_prefix("/").split("/")
      protocol = env["HTTP_UPGRADE"]
      hold = lambda do |io|
        io.write(FIRST.fetch(first))
        Thread.new { sleep } # Reads nothing: bytes of the client stay unread.
      end
      if way == "full"
        io = env["rack.hijack"].call
        io.write("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: #{protocol}\r\n\r\n")
        hold.(io)
        [200, {}, []]
      elsif way == "partial"
        [101, { "connection" => "upgrade", "upgrade" => protocol, "rack.hijack" => hold }, []]
      else
        [200, { "content-type" => "text/plain" }, [Process.pid.to_s]]
      end
    end)
  RUBY

  %w[full partial].each do |way|
    it "closes with 1012 when the server stops (#{way})" do
      expected = { "frames" => RESTART, "nothing" => RESTART, "long" => RESTART, "half" => "", "close" => "" }
      own = start(workers: 2, app: APP)
      sockets = expected.to_h { |first, _| [first, open_socket(own, way, first)] }
      own.signal(:TERM)
      expected.each { |first, close| assert_equal close, sockets[first].read_to_end, first }
    end

    it "closes 200 at once, also of clients that have sent more than was read (#{way})" do
      own = start(workers: 2, app: APP)
      sockets = Array.new(200) { open_socket(own, way, "frames") }
      sockets.each { |socket| socket.write("\x82\xFE\x0F\xA0#{'m' * 4004}") }
      own.signal(:TERM)
      sockets.each { |socket| assert_equal RESTART, socket.read_to_end }
    end

    it "closes those of one worker that leaves, and no others (#{way})" do
      own = start(workers: 2, app: APP)
      sockets = Array.new(20) { open_socket(own, way, "frames") }
      own.signal(:TTOU)
      wait_until("half of them to be closed") { sockets.count { |socket| !socket.silent?(0.01) } >= 10 }
      open, closed = sockets.partition(&:silent?)
      assert_equal [10, 10], [open.size, closed.size]
      closed.each { |socket| assert_equal RESTART, socket.read_to_end }
    end
  end

  it "ends another protocol as the app left it" do
    own = start(app: APP)
    sockets = %w[full partial].map { |way| open_socket(own, way, "frames", protocol: "chat") }
    own.signal(:TERM)
    sockets.each { |socket| assert_equal "", socket.read_to_end }
  end

  it "does not close a WebSocket for its app" do
    own = start(app: APP.sub("Thread.new { sleep }", "Thread.new { io.close }"))
    assert_equal "", open_socket(own, "full", "frames").read_to_end
  end

  private

  def open_socket(own, way, first, protocol: "websocket")
    connection = connect(own)
    connection.write(request("GET", "/#{way}/#{first}", "Connection" => "Upgrade", "Upgrade" => protocol))
    assert_match(%r{\AHTTP/1.1 101 }, connection.read_through("\r\n\r\n"))
    assert_equal FIRST.fetch(first), connection.read_exactly(FIRST.fetch(first).bytesize)
    connection
  end
end
