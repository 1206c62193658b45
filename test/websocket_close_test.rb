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
        io.write("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: #{protocol}\r\nX-Pid: #{Process.pid}\r\n\r\n")
        hold.(io)
        [200, {}, []]
      elsif way == "partial"
        [101, { "connection" => "upgrade", "upgrade" => protocol, "x-pid" => Process.pid.to_s, "rack.hijack" => hold }, []]
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
      # A worker whose thread is not free yet gets fewer, so each is opened when the threads of those before are.
      opened = Array.new(20) do
        open_with_pid(own, way, "frames").tap { wait_until("a free thread") { own.stats["workers"].all? { |worker| worker["busy_threads"].zero? } } }
      end
      of_worker = opened.group_by(&:last).transform_values { |group| group.map(&:first) }
      assert_equal [10, 10], of_worker.values.map(&:size)
      own.signal(:TTOU)
      leaving = wait_until("all of one worker to be closed") { of_worker.keys.find { |pid| of_worker[pid].none? { |socket| socket.silent?(0.01) } } }
      of_worker.delete(leaving).each { |socket| assert_equal RESTART, socket.read_to_end }
      of_worker.each_value { |staying| assert(staying.all?(&:silent?)) }
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

  def open_socket(...) = open_with_pid(...).first

  # The connection, and the worker's process that has it.
  def open_with_pid(own, way, first, protocol: "websocket")
    connection = connect(own)
    connection.write(request("GET", "/#{way}/#{first}", "Connection" => "Upgrade", "Upgrade" => protocol))
    head = connection.read_through("\r\n\r\n")
    assert_match(%r{\AHTTP/1.1 101 }, head)
    assert_equal FIRST.fetch(first), connection.read_exactly(FIRST.fetch(first).bytesize)
    [connection, head[/^x-pid: (\d+)/i, 1]]
  end
end
