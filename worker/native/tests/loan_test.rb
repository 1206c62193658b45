# frozen_string_literal: true

# Large bodies that the worker writes to the client itself, on a socket that the front lends it.
class LoanTest < Case
  SHAPES = [[1, 1], [1, 4], [3, 3]].freeze
  MEBIBYTE = Array.new(1 << 17) { |i| [i].pack("Q<") }.join.freeze

  # Bodies in which each eight bytes contain their position.
  LARGE = <<~'RUBY'
    run lambda { |env|
      $log ||= []
      body = Array.new(1 << 17) { |i| [i].pack("Q<") }.join
      case env["PATH_INFO"]
      when "/log" then [200, {}, [$log.inspect]]
      when "/quick" then [200, {}, ["quick"]]
      when "/parts" then [200, {}, [body[0, 100], body[100, 2000], body[2100, 600_000], "", body[602_100..-101], body[-100..]]]
      when "/string" then [200, {}, body]
      when "/length" then [200, { "content-length" => body.bytesize.to_s }, [body.freeze]]
      when "/changing"
        # Another thread changes the body and moves all objects while it is being sent.
        Thread.new { sleep 0.05; 5.times { body << "x"; body.setbyte(0, 120); GC.compact; body.replace("short") } }
        [200, {}, [body]]
      when "/interrupted"
        me = Thread.current
        Thread.new { sleep 0.1; me.raise("interrupted") }
        [200, {}, [body]]
      else
        env["rack.response_finished"] << ->(_, status, _, error) { $log << [status, error.class.name] }
        [200, {}, [body]]
      end
    }
  RUBY

  def each_shape(&)
    SHAPES.each { |threads| serve(LARGE, threads: threads, &) }
  end

  # A pair of sockets: the client, with its reader, and the end to lend.
  def client
    ours, theirs = UNIXSocket.pair
    reader = Thread.new { ours.read.tap { ours.close } }
    yield theirs
    theirs.close
    reader.value
  end

  def test_all_is_taken_by_a_fast_client
    each_shape do |worker|
      %w[/ /parts /string /length].each do |path|
        rest = nil
        got = client do |socket|
          socket.setsockopt(:SOCKET, :SNDBUF, 4 << 20)
          rest = lend_to(worker, worker.start(target: path), socket)
        end
        assert_equal MEBIBYTE, got + rest, path
      end
    end
  end

  # Lends the socket. Returns the rest that was not written.
  def lend_to(worker, id, socket, pause: 0)
    status, fields, body = worker.take_for(id, :response).head
    assert_equal [200, [MEBIBYTE.bytesize.to_s], ""], [status, header(fields, "content-length"), body]
    assert_equal MEBIBYTE.bytesize, worker.take_for(id, :offer).length
    sleep pause
    worker.lend(id, socket)
    taken = worker.take_for(id, :taken).length
    rest = taken < MEBIBYTE.bytesize ? worker.file_bytes(worker.take_for(id, :file)) : ""
    assert_equal MEBIBYTE.bytesize, taken + rest.bytesize
    refute_predicate worker.take_for(id, :end), :end?
    rest
  end

  def test_what_does_not_fit_follows_as_a_file
    each_shape do |worker|
      %w[/ /parts].each do |path|
        ours, theirs = UNIXSocket.pair
        theirs.setsockopt(:SOCKET, :SNDBUF, 8192)
        rest = lend_to(worker, worker.start(target: path), theirs)
        assert_operator rest.bytesize, :>, MEBIBYTE.bytesize / 2
        assert_equal "quick", worker.get("/quick")[2], "nobody waits for the client"
        theirs.close
        assert_equal MEBIBYTE, ours.read + rest, path
      end
    end
  end

  def test_a_full_socket_takes_nothing
    each_shape do |worker|
      ours, theirs = UNIXSocket.pair
      filling = 0
      loop { filling += theirs.write_nonblock("x" * 65_536) }
    rescue IO::WaitWritable
      assert_equal MEBIBYTE, lend_to(worker, worker.start, theirs)
      theirs.close
      assert_equal filling, ours.read.bytesize
    end
  end

  def test_declined
    each_shape do |worker, front|
      %w[/ /parts /string /length].each { |path| assert_equal MEBIBYTE, worker.get(path)[2], path }
      assert_equal 0, front.slot(0)[:failures]
    end
  end

  def test_a_client_that_has_closed
    each_shape do |worker|
      ours, theirs = UNIXSocket.pair
      ours.close
      assert_equal MEBIBYTE, lend_to(worker, worker.start, theirs), "the front finds out"
      assert_equal "quick", worker.get("/quick")[2]
    end
  end

  def test_the_worker_keeps_no_socket
    each_shape do |worker|
      worker.get("/quick")
      before = sockets(worker)
      5.times do
        ours, theirs = UNIXSocket.pair
        lend_to(worker, worker.start, theirs)
        [ours, theirs].each(&:close)
        id = worker.start
        worker.take_for(id, :offer)
        worker.send_frame(Wire.frame(:abort, id))
        ours, theirs = UNIXSocket.pair
        worker.lend(id, theirs)
        worker.take_for(id, :end)
        [ours, theirs].each(&:close)
      end
      worker.get("/quick")
      eventually("as many sockets as before") { sockets(worker) == before }
    end
  end

  def sockets(worker)
    Dir["/proc/#{worker.pid}/fd/*"].filter_map { |path| File.readlink(path) }.grep(/socket/).sort
  end

  def test_abort_while_waiting
    each_shape do |worker, front|
      id = worker.start
      worker.take_for(id, :offer)
      worker.send_frame(Wire.frame(:abort, id))
      assert_predicate worker.take_for(id, :end), :end?
      # The body's close, which writes the log, comes after END.
      log = nil
      eventually("what the app was told") { (log = worker.get("/log")[2]) != "[]" }
      assert_equal '[[200, "Firebrick::ClientGone"]]', log
      assert_equal 0, front.slot(0)[:failures]
    end
  end

  def test_other_requests_are_heard_while_waiting
    serve(LARGE, threads: [3, 3]) do |worker|
      id = worker.start
      worker.take_for(id, :offer)
      3.times { assert_equal "quick", worker.get("/quick")[2] }
      worker.lend(id)
      assert_equal MEBIBYTE, worker.file_bytes(worker.take_for(id, :file))
      worker.take_for(id, :end)
    end
    serve(LARGE) do |worker|
      id = worker.start
      worker.take_for(id, :offer)
      quick = worker.start(target: "/quick")
      file = Tempfile.create("body")
      file.write("inside")
      upload = worker.start(target: "/quick", method: "POST", file: file, fd_length: 6)
      ours, theirs = UNIXSocket.pair
      theirs.setsockopt(:SOCKET, :SNDBUF, 8192)
      worker.lend(id, theirs)
      theirs.close
      taken = worker.take_for(id, :taken).length
      assert_equal MEBIBYTE, ours.read + worker.file_bytes(worker.take_for(id, :file))
      assert_operator taken, :>, 0
      [quick, upload].each { |other| assert_equal "quick", worker.response(other)[2] }
    end
  end

  def test_the_app_may_change_the_body_meanwhile
    each_shape do |worker|
      [0, 0.1].each do |pause|
        rest = nil
        got = client do |socket|
          socket.setsockopt(:SOCKET, :SNDBUF, 65_536)
          rest = lend_to(worker, worker.start(target: "/changing"), socket, pause: pause)
        end
        assert_equal MEBIBYTE, got + rest
      end
    end
  end

  def test_an_exception_while_waiting
    threads_only "Thread#raise concerns the thread, not the fiber that waits"
    each_shape do |worker|
      id = worker.start(target: "/interrupted")
      worker.take_for(id, :offer)
      assert_predicate worker.take_for(id, :end), :end?
      ours, theirs = UNIXSocket.pair
      worker.lend(id, theirs)
      theirs.close
      assert_equal "", ours.read, "closed unused"
      assert_equal "quick", worker.get("/quick")[2]
    end
  end

  def test_the_front_closes_while_the_worker_waits
    SHAPES.each do |threads|
      FakeFront.open(LARGE, threads: threads) do |front, worker|
        worker.take_for(worker.start, :offer)
        worker.close
        assert_equal ["exit", 0], front.ended(worker).first(2)
      end
    end
  end

  def test_head_requests_are_not_offered_anything
    serve(LARGE) { |worker| assert_predicate worker.take_for(worker.start(method: "HEAD"), :response), :end? }
  end
end
