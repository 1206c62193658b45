# frozen_string_literal: true

# Requests on fibers: a waiting request does not stop the others.
class FibersTest < Case
  # Waits of about 0.4 s each, and whether other requests are served meanwhile: yes, no, or the first Ruby with which they are. docs/fibers.md has
  # the same table.
  WAITS = {
    "sleep" => ["yes", "sleep 0.4"],
    "IO#read of a pipe" => ["yes", "r, w = IO.pipe; Thread.new { sleep 0.4; w << 'x'; w.close }; r.read"],
    "IO#gets of a socket" => ["yes", "a, b = UNIXSocket.pair; Thread.new { sleep 0.4; b.puts 'x' }; a.gets"],
    "IO#write to a full pipe" => ["yes", "r, w = IO.pipe; Thread.new { sleep 0.4; r.read(200_000) }; w.write('x' * 200_000)"],
    "IO#wait_readable" => ["yes", "a, = UNIXSocket.pair; raise 'ready' if a.wait_readable(0.4)"],
    "IO.select of one" => ["yes", "a, = UNIXSocket.pair; raise 'ready' if IO.select([a], nil, nil, 0.4)"],
    "IO.select of several" => ["yes", <<~RUBY],
      a, b = UNIXSocket.pair; c, = UNIXSocket.pair; Thread.new { sleep 0.4; b << 'x' }
      raise 'wrong' unless IO.select([c, a], [], nil, 5) == [[a], [], []]
    RUBY
    "IO.select of many" => ["yes", <<~RUBY],
      all = Array.new(20) { UNIXSocket.pair }; Thread.new { sleep 0.4; all[7][1] << 'x' }
      raise 'wrong' unless IO.select(all.map(&:first), nil, nil, 5) == [[all[7][0]], [], []]
    RUBY
    "TCPSocket" => ["yes", "TCPSocket.new('127.0.0.1', LATE.local_address.ip_port).read == 'late' or raise"],
    "TCPSocket by name" => ["yes", "TCPSocket.new('localhost', LATE.local_address.ip_port).read == 'late' or raise"],
    "Net::HTTP" => ["yes", "Net::HTTP.get(URI(\"http://127.0.0.1:\#{HTTP.local_address.ip_port}/\")) == 'late' or raise"],
    "OpenSSL handshake" => ["yes", <<~RUBY],
      a, b = UNIXSocket.pair; Thread.new { sleep 0.4; b.close }
      begin OpenSSL::SSL::SSLSocket.new(a).connect; rescue OpenSSL::SSL::SSLError, Errno::ECONNRESET; end
    RUBY
    "Queue#pop" => ["yes", "q = Queue.new; Thread.new { sleep 0.4; q << 1 }; q.pop"],
    "SizedQueue#push" => ["yes", "q = SizedQueue.new(1); q << 1; Thread.new { sleep 0.4; q.pop }; q << 2"],
    "ConditionVariable#wait" => ["yes", "m = Mutex.new; c = ConditionVariable.new; Thread.new { sleep 0.4; c.signal }; m.synchronize { c.wait(m, 5) }"],
    "Mutex#lock, held by a thread" => ["yes", "m = Mutex.new; Thread.new { m.synchronize { sleep 0.4 } }; sleep 0.1; m.synchronize { }"],
    "Mutex#lock, held by a fiber" => ["yes", "LOCK.synchronize { sleep 0.2 }"],
    "Monitor#synchronize" => ["yes", "MONITOR.synchronize { MONITOR.synchronize { sleep 0.2 } }"],
    "Thread#join" => ["yes", "Thread.new { sleep 0.4 }.join"],
    "Thread#value" => ["yes", "Thread.new { sleep 0.4; 1 }.value == 1 or raise"],
    "Thread#join with a limit" => ["yes", "t = Thread.new { sleep }; t.join(0.4).nil? or raise; t.kill"],
    "Process.wait" => ["yes", "Process.wait(spawn('sleep 0.4')); $?.success? or raise"],
    "backticks" => ["yes", "`sleep 0.4; echo x` == \"x\\n\" or raise"],
    "system" => ["yes", "system('sleep 0.4') or raise"],
    "Open3.capture2" => ["yes", "Open3.capture2('cat; sleep 0.4', stdin_data: 'x').first == 'x' or raise"],
    "fork and Process.wait" => ["yes", "Process.wait(fork { sleep 0.4; exit!(0) }); $?.success? or raise"],
    "Timeout.timeout of a sleep" => ["yes", "begin Timeout.timeout(0.4) { sleep }; raise 'no time-out'; rescue Timeout::Error; end"],
    "Timeout.timeout of a read" => ["yes", "a, = UNIXSocket.pair; begin Timeout.timeout(0.4) { a.read }; raise 'no'; rescue Timeout::Error; end"],
    "Timeout.timeout that is not needed" => ["yes", "Timeout.timeout(5) { sleep 0.4 }"],
    "Fiber.schedule" => ["yes", "q = Queue.new; Fiber.schedule { sleep 0.4; q << 1 }; q.pop"],
    "a fiber of the app" => ["yes", "Fiber.new { sleep 0.4; 1 }.resume == 1 or raise"],
    "Enumerator#next" => ["3.2", "Enumerator.new { |y| sleep 0.4; y << 1 }.next == 1 or raise"],
    "Enumerator::Lazy" => ["yes", "[1].lazy.map { |x| sleep 0.4; x }.to_a"],
    "File#flock" => ["no", "File.open('lock', 'w') { |f| f.flock(File::LOCK_EX); g = File.open('lock'); Thread.new { sleep 0.4; f.flock(File::LOCK_UN) }; g.flock(File::LOCK_EX) }"],
    "opening a FIFO that nobody writes" => ["no", "File.mkfifo('fifo') unless File.exist?('fifo'); Thread.new { sleep 0.4; File.write('fifo', 'x') }; File.open('fifo').close"]
  }.freeze

  WAITING = <<~RUBY.freeze
    %w[socket monitor timeout open3 net/http openssl].each { |name| require name }
    LOCK = Mutex.new
    MONITOR = Monitor.new
    LATE = TCPServer.new("127.0.0.1", 0)
    HTTP = TCPServer.new("127.0.0.1", 0)
    Firebrick.after_fork do
      Thread.new { loop { LATE.accept.then { |c| Thread.new { sleep 0.4; c << "late"; c.close } } } }
      Thread.new do
        loop { HTTP.accept.then { |c| Thread.new { c.readpartial(1000); sleep 0.4; c << "HTTP/1.0 200 OK\\r\\n\\r\\nlate"; c.close } } }
      end
    end
    CALLS = {
      #{WAITS.map { |name, (_, code)| "#{name.inspect} => -> { #{code} }" }.join(",\n  ")}
    }
    run lambda { |env|
      name = env["QUERY_STRING"].tr("+", " ")
      CALLS.fetch(name).call unless name.empty?
      [200, {}, [name]]
    }
  RUBY

  def fibers(rackup, count = 50, **options, &)
    serve(rackup, fibers: count, **options, &)
  end

  def stops?(answer)
    answer == "no" || (answer != "yes" && RUBY_VERSION < answer)
  end

  def test_what_waits_lets_others_run
    fibers(WAITING) do |worker|
      worker.get
      WAITS.each do |name, (answer, _)|
        slow = Array.new(stops?(answer) ? 1 : 2) { worker.start(target: "/?#{name.tr(' ', '+')}") }
        quick = worker.start
        responses = Array.new(slow.length + 1) { worker.take(timeout: 20) { |frame| frame.kind == :response } }
        assert_equal [200], responses.map { |frame| frame.head[0] }.uniq, "#{name}: #{responses.map { |frame| frame.head[2] }}"
        first = responses.first.id == quick
        assert_equal !stops?(answer), first, "#{name}: whether another request was served meanwhile"
        assert_equal (slow + [quick]).sort, responses.map(&:id).sort
      end
    end
  end

  # Together the requests take as long as one.
  def assert_together(worker, count, **request)
    ids = Array.new(count) { worker.start(**request) }
    ids.map { |id| worker.response(id, timeout: 30)[2] }
  end

  MEETING = <<~'RUBY'
    count = 0
    run lambda { |env|
      wanted = env["QUERY_STRING"].to_i
      count += 1
      sleep 0.01 until count >= wanted
      [200, {}, [env["PATH_INFO"]]]
    }
  RUBY

  def test_as_many_as_there_are_fibers_are_served_at_a_time
    fibers(MEETING, 200) { |worker| assert_equal ["/a"] * 200, assert_together(worker, 200, target: "/a?200") }
  end

  def test_more_requests_than_fibers
    fibers(app("sleep 0.02; [200, {}, ['x']]"), 3) do |worker, front|
      ids = Array.new(50) { worker.start }
      ids.each { |id| assert_equal 200, worker.response(id)[0] }
      assert_equal 50, front.slot(0)[:requests]
      eventually("none is served") { front.slot(0)[:serving].all?(&:zero?) }
    end
  end

  def test_threads_with_fibers
    fibers(MEETING, 20, threads: [2, 2], links: 2) do |worker|
      ids = Array.new(40) { |number| worker.start(target: "/?40", link: number % 2) }
      ids.each { |id| worker.take { |frame| frame.kind == :response && frame.id == id } }
    end
  end

  # The worker reports how many requests it can take.
  def test_ready_tells_the_seats
    FakeFront.open(MEETING, fibers: 20, threads: [1, 3], workers: 0) do |front|
      worker = front.fork_worker(ready: false)
      assert_equal 60, worker.take { |frame| frame.kind == :ready }.payload.unpack("VV")[1]
    end
  end

  def test_another_thread_takes_over_when_one_computes
    app = app(<<~RUBY)
      if env["PATH_INFO"] == "/hog"
        sleep 0.01 # on a fiber that has been left once
        n = 0; n += 1 until File.exist?("free")
      end
      [200, {}, [env["PATH_INFO"]]]
    RUBY
    fibers(app, 20, threads: [1, 2]) do |worker, front|
      hog = worker.start(target: "/hog")
      sleep 0.1
      20.times { assert_equal "/x", worker.get("/x")[2] }
      File.write(File.join(front.dir, "free"), "")
      assert_equal "/hog", worker.response(hog)[2]
    end
  end

  GONE = <<~'RUBY'
    log = ->(text) { File.write("log", "#{text}\n", mode: "a") }
    case env["PATH_INFO"]
    when "/log" then return [200, {}, [File.exist?("log") ? File.read("log") : ""]]
    when "/stubborn"
      begin
        sleep
      rescue Firebrick::ClientGone
        sleep 0.1 # the second wait is left alone
        log.call("cleaned up")
      end
    else
      begin
        sleep 0.5
        log.call("#{env['REQUEST_METHOD']} to its end")
      ensure
        log.call("#{env['REQUEST_METHOD']} over")
      end
    end
    [200, {}, ["x"]]
  RUBY

  def log_after(worker, method, target)
    id = worker.start(target: target, method: method)
    sleep 0.1
    worker.send_frame(Wire.frame(:abort, id))
    worker.take_for(id)
    worker.get("/log")[2].lines(chomp: true)
  end

  def test_a_client_that_leaves_ends_the_wait_of_a_request_that_changes_nothing
    fibers("answer = lambda { |env|\n#{GONE}\n}\nrun ->(env) { answer.call(env) }") do |worker|
      assert_equal ["GET over"], log_after(worker, "GET", "/")
      assert_equal ["GET over", "POST to its end", "POST over"], log_after(worker, "POST", "/")
      assert_equal "cleaned up", log_after(worker, "GET", "/stubborn").last
    end
  end

  # The request computes when its client disconnects, and waits later.
  def test_a_client_that_leaves_while_its_request_computes
    app = <<~RUBY
      run lambda { |env|
        return [200, {}, [File.exist?("log") ? File.read("log") : "none"]] if env["PATH_INFO"] == "/log"
        begin
          nil until File.exist?("left")
          sleep
        ensure
          File.write("log", $!.class.name)
        end
      }
    RUBY
    fibers(app, threads: [2, 2]) do |worker, front|
      id = worker.start
      sleep 0.1
      worker.send_frame(Wire.frame(:abort, id))
      worker.get("/log")
      File.write(File.join(front.dir, "left"), "")
      worker.take_for(id)
      assert_equal "Firebrick::ClientGone", worker.get("/log")[2]
    end
  end

  # However a wait for a signal ends, the lock is the waiter's again, as with threads.
  SIGNALS = <<~'RUBY'
    %w[timeout monitor].each { |name| require name }
    caught = lambda do |lock, &block|
      block.call
    rescue Exception => e
      "#{e.class}: #{e.message}; #{lock.locked?}"
    end
    mutex = ->(&block) { m = Mutex.new; caught.call(m) { m.synchronize { block.call(m) } } }
    TRIALS = {
      "time-out" => -> { mutex.call { |m| Timeout.timeout(0.05) { ConditionVariable.new.wait(m) } } },
      "limit" => -> { mutex.call { |m| Timeout.timeout(0.05) { ConditionVariable.new.wait(m, 10) } } },
      "monitor" => -> {
        m = Monitor.new
        def m.locked? = mon_locked?
        c = m.new_cond
        caught.call(m) { m.synchronize { m.synchronize { Timeout.timeout(0.05) { c.wait } } } }
      },
      # While the fiber waits for the lock, the second one comes.
      "held" => -> {
        mutex.call do |m|
          Timeout.timeout(0.2) do
            Timeout.timeout(0.05) { ConditionVariable.new.wait(m).tap { Fiber.schedule { m.synchronize { sleep 0.3 } } } }
          end
        end
      },
      "over" => -> { mutex.call { |m| [ConditionVariable.new.wait(m, 0.05), m.owned?] } },
      "signal" => -> {
        mutex.call do |m|
          c = ConditionVariable.new
          Thread.new { m.synchronize { c.signal } }
          [c.wait(m, 60).class, m.owned?]
        end
      },
      "negative" => -> { mutex.call { |m| m.sleep(-1) } }
    }
    run ->(env) { [200, {}, [TRIALS.fetch(env["QUERY_STRING"]).call.inspect]] }
  RUBY
  EXPIRED = "Timeout::Error: execution expired; false"
  OUTCOMES = { "time-out" => EXPIRED, "limit" => EXPIRED, "monitor" => EXPIRED, "held" => EXPIRED, "over" => [nil, true], "signal" => [Integer, true],
               "negative" => "ArgumentError: time interval must not be negative; false" }.freeze

  def test_a_lock_after_a_wait_for_a_signal
    fibers(SIGNALS) do |worker|
      OUTCOMES.each { |name, outcome| assert_equal outcome.inspect, worker.get("/?#{name}")[2], name }
    end
  end

  # Threads signal while fibers are about to wait: each signal ends a wait.
  def test_no_signal_is_lost
    app = app(<<~RUBY)
      lock, change, turn = Mutex.new, ConditionVariable.new, 0
      other = Thread.new { 300.times { |n| lock.synchronize { change.wait(lock) until turn == (2 * n) + 1; turn += 1; change.signal } } }
      300.times { |n| lock.synchronize { turn += 1; change.signal; change.wait(lock) until turn == (2 * n) + 2 } }
      [200, {}, [(other.join && turn).to_s]]
    RUBY
    fibers(app, threads: [2, 2]) do |worker|
      ids = Array.new(6) { worker.start }
      ids.each { |id| assert_equal "600", worker.response(id, timeout: 60)[2] }
    end
  end

  # The loop runs late: before a waiting fiber runs, its time is over and the object is handed to it. It is not offered to any other fiber.
  HANDED = <<~'RUBY'
    require "timeout"
    now = -> { Process.clock_gettime(Process::CLOCK_MONOTONIC) }
    Limit = Class.new(StandardError)
    # Each row: the lock or queue before, the wait, and the call that ends it.
    WAYS = {
      "mutex" => -> { lock = Mutex.new; [-> { lock.lock }, -> { lock.synchronize { } }, -> { lock.unlock }] },
      "queue" => -> { queue = Queue.new; [-> { }, -> { queue.pop }, -> { queue << 1 }] },
      "condition" => -> { lock = Mutex.new; change = ConditionVariable.new; [-> { }, -> { lock.synchronize { change.wait(lock) } }, -> { change.signal }] }
    }
    run lambda { |env|
      own, take, give = WAYS.fetch(env["QUERY_STRING"]).call
      log = Queue.new
      Fiber.schedule { own.call; sleep 0.04; give.call }
      Fiber.schedule do
        Timeout.timeout(0.05, Limit) { take.call; log << "first" }
      rescue Limit
        nil
      end
      Fiber.schedule { take.call; log << "second" }
      late = now.call + 0.2
      Firebrick.unsliced { nil until now.call > late }
      [200, {}, [Timeout.timeout(10) { log.pop }]]
    }
  RUBY

  def test_what_is_handed_to_one_whose_time_is_over
    fibers(HANDED) do |worker|
      %w[mutex queue condition].each { |way| assert_match(/first|second/, worker.get("/?#{way}")[2], way) }
    end
  end

  # Both expired while the fiber computed: the outer one is not lost.
  def test_two_timeouts_that_are_late
    app = app(<<~RUBY)
      outer = Class.new(StandardError)
      inner = Class.new(StandardError)
      late = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 0.2
      begin
        Timeout.timeout(0.02, outer) do
          Timeout.timeout(0.05, inner) { Firebrick.unsliced { nil until Process.clock_gettime(Process::CLOCK_MONOTONIC) > late }; sleep }
        rescue inner
          sleep
        end
      rescue outer
        [200, {}, ["outer"]]
      end
    RUBY
    fibers("require 'timeout'\n#{app}") { |worker| assert_equal "outer", worker.get[2] }
  end

  # A descriptor is closed while a fiber waits for it, and its number is reused at once.
  def test_closing_what_another_fiber_waits_for
    app = app(<<~RUBY)
      case env["PATH_INFO"]
      when "/wait"
        $pair = UNIXSocket.pair
        begin
          [200, {}, [$pair[0].read.to_s]]
        rescue IOError => e
          [200, {}, [e.message]]
        end
      else
        $pair[0].close
        $pair = UNIXSocket.pair
        [200, {}, ["closed"]]
      end
    RUBY
    fibers("require 'socket'\n#{app}") do |worker|
      id = worker.start(target: "/wait")
      sleep 0.1
      assert_equal "closed", worker.get("/close")[2]
      assert_equal "stream closed in another fiber", worker.response(id)[2]
    end
  end

  # 1,000 fibers with random waits of all kinds: each ends, in the order of time, with its own result.
  def test_many_waits_at_random
    app = app(<<~RUBY)
      random = Random.new(env["QUERY_STRING"].to_i)
      trail = []
      5.times do
        case random.rand(4)
        when 0 then trail << sleep(random.rand / 20).class
        when 1 then r, w = IO.pipe; Thread.new { sleep random.rand / 50; w << "x"; w.close }; trail << r.read; r.close
        when 2 then trail << Thread.new { sleep random.rand / 50; env["QUERY_STRING"] }.value
        else begin Timeout.timeout(random.rand / 20) { sleep }; rescue Timeout::Error; trail << :late; end
        end
      end
      [200, {}, [env["QUERY_STRING"], " ", trail.length.to_s]]
    RUBY
    fibers("require 'timeout'\n#{app}", 1000) do |worker|
      ids = Array.new(1000) { |number| worker.start(target: "/?#{number}") }
      ids.each_with_index { |id, number| assert_equal "#{number} 5", worker.response(id, timeout: 60)[2] }
    end
  end

  def test_sleepers_wake_in_the_order_of_their_times
    app = app('sleep env["QUERY_STRING"].to_f; [200, {}, [env["QUERY_STRING"]]]')
    fibers(app, 100) do |worker|
      times = Array.new(60) { |at| (at * 0.02) + 0.3 }
      times.shuffle(random: Random.new(3)).each { |time| worker.start(target: format("/?%.2f", time)) }
      order = Array.new(60) { worker.take { |frame| frame.kind == :response }.head[2].to_f }
      assert_equal order.sort, order
    end
  end

  def test_the_app_keeps_the_scheduler
    app = app(<<~RUBY)
      own = Class.new { def io_wait(*) = 1; def kernel_sleep(*) = 1; def block(*) = 1; def unblock(*) = 1; def close = nil; def fiber_interrupt(*) = 1 }
      begin
        Fiber.set_scheduler(own.new)
        [200, {}, ["replaced"]]
      rescue FiberError => e
        [200, {}, [e.message]]
      end
    RUBY
    fibers(app) { |worker| assert_match(/run the block on a thread of its own/, worker.get[2]) }
  end

  def test_fiber_locals_and_storage
    app = app(<<~RUBY)
      before = Thread.current[:kept]
      stored = Fiber.respond_to?(:[]) ? Fiber[:kept] : nil
      Fiber[:kept] = 1 if Fiber.respond_to?(:[])
      sleep 0.05
      [200, {}, [stored.inspect]]
    RUBY
    fibers(app, 5) do |worker|
      3.times { assert_equal ["nil"] * 5, assert_together(worker, 5) }
    end
  end

  def test_fibers_tell_where_they_are
    fibers(app("def nap = sleep(1)\nnap; [200, {}, []]")) do |worker|
      ids = Array.new(3) { worker.start }
      sleep 0.3
      Process.kill("URG", worker.pid)
      frame = worker.take { |one| one.kind == :traces }
      assert_equal 3, frame.payload.scan(/config\.ru:\d+:in [`'][^`']*nap'/).length
      ids.each { |id| worker.take_for(id, :response) }
    end
  end

  def test_a_worker_that_drains_waits_for_its_fibers
    fibers(app("sleep 0.5; [200, {}, ['x']]")) do |worker, front|
      ids = Array.new(20) { worker.start }
      worker.drain
      ids.each { |id| assert_equal "x", worker.response(id)[2] }
      assert_equal ["exit", 0], front.ended(worker).first(2)
    end
  end

  def test_a_killed_thread
    app = app(<<~RUBY)
      Thread.current.kill if env["PATH_INFO"] == "/kill"
      sleep 0.3 if env["PATH_INFO"] == "/sleep"
      [200, {}, ["x"]]
    RUBY
    fibers(app, threads: [2, 2]) do |worker|
      ids = Array.new(5) { worker.start(target: "/sleep") }
      assert_equal 500, worker.get("/kill")[0]
      ids.each { |id| assert_includes [200, 500], worker.response(id)[0] }
      10.times { assert_equal 200, worker.get[0] }
    end
  end
end
