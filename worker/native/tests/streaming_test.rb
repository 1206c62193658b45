# frozen_string_literal: true

# Bodies that take time, windows, disconnecting clients, hijacking, early hints, and the steps after the reply.
class StreamingTest < Case
  WINDOW = 1 << 20

  def test_a_chunk_does_not_wait_for_the_next
    rackup = app('b = Object.new; def b.each; yield "one"; sleep 5; yield "two"; end; [200, {}, b]')
    [[1, 1], [1, 3]].each do |threads|
      serve(rackup, threads: threads) do |worker|
        id = worker.start
        assert_equal "one", worker.take_for(id, :response, timeout: 3).head.last
        assert_equal "two", worker.take_for(id, :body, timeout: 20).payload
        refute_predicate worker.take_for(id, :end), :end?
      end
    end
  end

  # Rails' responses respond to `to_ary`, including its streams; others have a length and take their time.
  def test_gathered_chunks_do_not_wait_for_the_next
    Dir.mktmpdir do |dir|
      gate = File.join(dir, "gate")
      each = %(def b.each; yield "on"; yield "e"; 2.times { |i| sleep 0.01 until File.exist?("#{gate}\#{i}"); yield i.to_s }; end)
      ["b = Object.new; def b.to_ary; end; #{each}; [200, {}, b]", "b = Object.new; #{each}; [200, { 'content-length' => '5' }, b]"].each do |text|
        [[1, 1], [1, 3]].each do |threads|
          serve(app(text), threads: threads) do |worker|
            id = worker.start
            assert_equal "one", worker.take_for(id, :response, timeout: 20).head.last
            2.times do |i|
              File.write("#{gate}#{i}", "")
              assert_equal i.to_s, worker.take_for(id, :body, timeout: 20).payload
            end
            refute_predicate worker.take_for(id, :end), :end?
          end
          FileUtils.rm(Dir["#{gate}*"])
        end
      end
    end
  end

  def test_a_gathered_body_that_raises_can_still_become_an_error
    serve(app('b = Object.new; def b.to_ary; end; def b.each; yield "one"; raise "late"; end; [200, {}, b]')) do |worker|
      head = worker.take_for(worker.start, :response)
      assert_equal 500, head.head.first
      assert_predicate head, :end?
    end
  end

  def test_the_window_is_respected
    rackup = app('b = Object.new; def b.each; 48.times { yield "x" * 65_536 }; end; [200, {}, b]')
    [[1, 1], [2, 2]].each do |threads|
      serve(rackup, threads: threads) do |worker|
        id = worker.start
        worker.take_for(id, :response)
        got = drain_bodies(worker, id, WINDOW)
        assert worker.quiet?(0.3), "bytes beyond the window"
        worker.send_frame(Wire.frame(:window, id, [100_000].pack("V")))
        got += drain_bodies(worker, id, 100_000)
        assert worker.quiet?(0.2), "bytes beyond the window"
        worker.send_frame(Wire.frame(:window, id, [1 << 30].pack("V")))
        assert_equal 48 * 65_536, got + rest_of_bodies(worker, id)
      end
    end
  end

  # Reads the bytes up to END, which may come with the last of them or later.
  def rest_of_bodies(worker, id)
    got = 0
    while (frame = worker.take_for(id)).kind != :end
      got += frame.payload.bytesize
    end
    got
  end

  def drain_bodies(worker, id, size)
    got = 0
    got += worker.take_for(id, :body).payload.bytesize while got < size
    assert_equal size, got
    got
  end

  ENDLESS = <<~'RUBY'
    $events ||= []
    class Endless
      def each = loop { yield "x" * 1000; sleep 0.01 if $slow }
      def close = $events << :closed
    end
    case env["PATH_INFO"]
    when "/events" then [200, {}, [$events.inspect]]
    when "/slow" then $slow = true; [200, {}, Endless.new]
    else $slow = false; [200, {}, Endless.new]
    end
  RUBY

  def test_abort_ends_the_body
    [[1, 1], [2, 2]].product(%w[/slow /fast]) do |threads, path|
      serve(app(ENDLESS), threads: threads) do |worker, front|
        id = worker.start(target: path)
        worker.take_for(id, :body)
        worker.send_frame(Wire.frame(:abort, id))
        assert_predicate worker.take_for(id, :end), :end?
        # The other thread may check earlier.
        eventually("the body is closed") { worker.get("/events")[2] == "[:closed]" }
        assert_equal 0, front.slot(0)[:failures]
        refute_match(/ClientGone/, front.log)
      end
    end
  end

  def test_abort_while_waiting_for_the_window
    serve(app(ENDLESS)) do |worker|
      id = worker.start
      got = worker.take_for(id, :response).head.last.bytesize
      got += worker.take_for(id, :body).payload.bytesize while got < WINDOW
      worker.send_frame(Wire.frame(:abort, id))
      assert_predicate worker.take_for(id, :end), :end?
      assert_equal "[:closed]", worker.get("/events")[2]
    end
  end

  def test_a_request_whose_client_has_gone_is_not_started
    serve(app("$n = $n.to_i + 1; [200, {}, [$n.to_s]]")) do |worker|
      worker.send_frame(Wire.request(100) + Wire.request(101) + Wire.frame(:abort, 101))
      assert_equal "1", worker.response(100)[2]
      assert_predicate worker.take_for(101, :end), :end?
      assert_equal "2", worker.get[2]
    end
  end

  def stream_of(worker, id)
    frame = worker.take_for(id, :response)
    assert_predicate frame, :stream?
    [UNIXSocket.for_fd(frame.fd.fileno).tap { frame.fd.autoclose = false }, frame.head]
  end

  def test_a_streaming_body
    serve(app('[200, { "a" => "b" }, ->(s) { s << "hello"; s.write(" world"); s.flush; s.close }]')) do |worker|
      id = worker.start
      socket, head = stream_of(worker, id)
      assert_equal [200, [%w[a b]], ""], head
      assert_equal "hello world", socket.read
      refute_predicate worker.take_for(id, :end), :end?
    end
  end

  def test_a_streaming_body_reads_the_request_first
    serve(app('[200, {}, ->(s) { s << s.read(3) << "|" << s.read << "|" << s.read(1).inspect; s.close_write; s.close }]')) do |worker|
      socket, = stream_of(worker, worker.start(method: "POST", body: "request body"))
      assert_equal "req|uest body|nil", socket.read
      socket, = stream_of(worker, worker.start)
      socket.read
    end
  end

  def test_an_upgrade_is_duplex
    serve(app('[101, { "upgrade" => "echo" }, ->(s) { while (l = s.gets); s << l.upcase; end; s.close }]')) do |worker|
      id = worker.start
      socket, head = stream_of(worker, id)
      assert_equal 101, head.first
      socket << "one\n"
      assert_equal "ONE\n", socket.gets
      socket.close_write
      assert_equal "", socket.read
      worker.take_for(id, :end)
    end
  end

  def test_a_streaming_body_that_raises
    serve(app('[200, {}, ->(s) { s << "half"; raise "boom" }]')) do |worker, front|
      id = worker.start
      socket, = stream_of(worker, id)
      assert_equal "half", socket.read(4)
      assert_raises(Errno::ECONNRESET) { socket.read }
      assert_predicate worker.take_for(id, :end), :end?
      assert_match(/boom/, front.log)
    end
  end

  def test_partial_hijack
    serve(app('[101, { "upgrade" => "x", "rack.hijack" => ->(io) { Thread.new { io << io.gets; io.close } } }, []]')) do |worker|
      id = worker.start
      socket, head = stream_of(worker, id)
      assert_equal [101, [%w[upgrade x]], ""], head
      worker.take_for(id, :end)
      socket << "ping\n"
      assert_equal "ping\n", socket.read
    end
  end

  def test_full_hijack
    text = <<~'RUBY'
      if env["PATH_INFO"] == "/late"
        begin
          [200, {}, Enumerator.new { |y| y << "x"; begin; env["rack.hijack"].call; rescue => e; y << e.message; end }]
        end
      else
        io = env["rack.hijack"].call
        raise "not the same" unless io.equal?(env["rack.hijack_io"]) && io.is_a?(IO)
        Thread.new { io << "HTTP/1.1 200 OK\r\n\r\n" << io.readpartial(100); io.close }
        [418, {}, []]
      end
    RUBY
    serve(app(text)) do |worker|
      id = worker.start
      fd = worker.take_for(id, :hijack).fd
      socket = UNIXSocket.for_fd(fd.fileno).tap { fd.autoclose = false }
      refute_predicate worker.take_for(id, :end), :end?
      socket << "data"
      assert_equal "HTTP/1.1 200 OK\r\n\r\ndata", socket.read
      assert_match(/had begun/, worker.get("/late")[2])
    end
  end

  # Of all requests that share their connection, only those that offer to switch can take it over.
  def test_the_offer_to_switch
    offer = { switch: true, fields: [%w[Host x], %w[Connection upgrade], ["Upgrade", "chat/1, websocket"], %w[upgrade x]] }
    text = '[200, {}, [[env["rack.protocol"], env["rack.hijack?"], env.key?("rack.hijack")].inspect]]'
    serve(app(text), threads: [1, 1]) do |worker|
      [11, 20, 30, 20, 11].each do |version|
        offered = ["chat/1", "websocket", "x"]
        assert_equal [offered, true, true].inspect, worker.get("/", **offer, version: version)[2]
        assert_equal [nil, version < 20, version < 20].inspect, worker.get("/", version: version)[2]
      end
    end
  end

  def test_the_protocol_of_a_response
    text = <<~'RUBY'
      headers = { "rack.protocol" => "WebSocket", "content-length" => "5", "x" => "y" }
      [200, headers, ->(io) { io << io.gets; io.close }]
    RUBY
    serve(app(text)) do |worker|
      fields = [%w[Host x], %w[Connection upgrade], %w[Upgrade websocket], ["Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="]]
      id = worker.start(switch: true, fields: fields)
      socket, head = stream_of(worker, id)
      expected = [%w[x y], ["sec-websocket-accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="], %w[upgrade websocket], %w[connection upgrade]]
      assert_equal [101, expected, ""], head
      socket << "ping\n"
      assert_equal "ping\n", socket.read
      worker.take_for(id, :end)
      # A protocol that was not offered.
      assert_equal 500, worker.get("/", switch: true, fields: [%w[Upgrade chat]])[0]
      assert_equal 500, worker.get("/")[0]
    end
  end

  def test_a_hijack_before_an_exception
    serve(app('env["rack.hijack"].call; raise "boom"')) do |worker|
      id = worker.start
      worker.take_for(id, :hijack)
      assert_predicate worker.take_for(id, :end), :end?
    end
  end

  def test_early_hints
    text = 'env["rack.early_hints"].call("link" => "</a.css>; rel=preload\n</b.js>; rel=preload", "x" => ["1"]); sleep 1; [200, {}, ["x"]]'
    serve(app(text)) do |worker|
      id = worker.start
      status, fields, = worker.take_for(id, :interim, timeout: 0.9).head
      assert_equal [103, ["</a.css>; rel=preload", "</b.js>; rel=preload"]], [status, header(fields, "link")]
      assert_equal "x", worker.response(id)[2]
    end
    serve(app('[200, {}, [env.key?("rack.early_hints").to_s]]'), early_hints: 0) { |w| assert_equal "false", w.get[2] }
  end

  def test_more_time
    text = 'env["firebrick.timeout"].extend(1.5); sleep 1; [200, {}, ["x"]]'
    serve(app(text)) do |worker|
      id = worker.start
      assert_equal 1500, worker.take_for(id, :extend, timeout: 0.9).payload.unpack1("Q<")
      assert_equal "x", worker.response(id)[2]
    end
    late = '[200, {}, Enumerator.new { |body| body << "a"; env["firebrick.timeout"].extend(1); body << "b" }]'
    serve(app(late)) { |worker| assert_equal "ab", worker.get[2], "a response that has begun has no time-out" }
  end

  AFTER = <<~'RUBY'
    $log ||= []
    case env["PATH_INFO"]
    when "/log" then [200, {}, [$log.inspect]]
    when "/reply"
      env["rack.after_reply"] << -> { sleep 1; $log << :one } << -> { raise "contained" } << -> { $log << :two }
      [200, {}, ["x"]]
    when "/finished"
      env["rack.response_finished"] << ->(e, s, h, x) { $log << [1, e.equal?(env), s, h, x] } << ->(*) { raise "contained" } << ->(*) { $log << 3 }
      [201, { "a" => "b" }, ["x"]]
    else
      env["rack.response_finished"] << ->(e, s, h, x) { $log << [s, x.message] }
      raise "boom"
    end
  RUBY

  def test_after_reply
    threads_only "other requests do not wait for the callback"
    serve(app(AFTER)) do |worker|
      assert_equal "x", worker.get("/reply", timeout: 0.9)[2]
      assert_equal "[:one, :two]", worker.get("/log")[2]
      assert_equal "[:one, :two]", worker.get("/log")[2]
    end
  end

  def test_response_finished
    serve(app(AFTER)) do |worker, front|
      worker.get("/finished")
      assert_equal '[3, [1, true, 201, {"a"=>"b"}, nil]]', worker.get("/log")[2].gsub(/" => /, '"=>')
      worker.get("/raise")
      assert_match(/\[500, "boom"\]\]\z/, worker.get("/log")[2])
      assert_match(/contained/, front.log)
    end
  end
end
