# frozen_string_literal: true

# Several requests at a time.
class ThreadsTest < Case
  SLEEPER = 'sleep(env["QUERY_STRING"].to_f); [200, {}, [env["PATH_INFO"]]]'

  # /NUMBER waits until that many requests of the path are in the app together, and responds with "together"; with "alone"
  # if they do not come.
  MEETING = <<~'RUBY'
    COUNTS = Hash.new(0)
    LOCK = Mutex.new
    run lambda { |env|
      path = env["PATH_INFO"]
      LOCK.synchronize { COUNTS[path] += 1 }
      400.times { COUNTS[path] < path[/\d+/].to_i ? sleep(0.02) : break }
      [200, {}, [COUNTS[path] < path[/\d+/].to_i ? "alone" : "together"]]
    }
  RUBY

  # Runs the block with an app in which /held waits until the gate is opened.
  def serve_with_gate(threads)
    Dir.mktmpdir do |dir|
      gate = File.join(dir, "gate")
      held = "sleep 0.01 until env['PATH_INFO'] != '/held' || File.exist?(#{gate.inspect}); [200, {}, [env['PATH_INFO']]]"
      serve(app(held), threads: threads) { |worker| yield worker, -> { FileUtils.touch(gate) } }
    end
  end

  def test_threads_wait_at_the_same_time
    serve(MEETING, threads: [1, 5]) do |worker, front|
      %w[/5 /5/again].each do |path|
        ids = Array.new(5) { worker.start(target: path) }
        assert_equal(["together"], ids.map { |id| worker.response(id)[2] }.uniq)
      end
      assert_equal 5, front.slot(0)[:threads]
    end
  end

  def test_requests_that_arrive_one_by_one_wait_at_the_same_time
    serve(MEETING, threads: [1, 5]) do |worker|
      20.times { worker.get }
      ids = Array.new(5) { sleep(0.02).then { worker.start(target: "/5") } }
      assert_equal(["together"], ids.map { |id| worker.response(id)[2] }.uniq)
    end
  end

  def test_one_slow_request_does_not_hold_a_fast_batch
    serve_with_gate([1, 3]) do |worker, open_gate|
      50.times { worker.get }
      worker.send_frame((1..30).map { |id| Wire.request(1000 + id, target: id == 5 ? "/held" : "/fast") }.join)
      fast = (1..30).reject { |id| id == 5 }
      fast.each { |id| assert_equal "/fast", worker.response(1000 + id)[2] }
      open_gate.call
      assert_equal "/held", worker.response(1005)[2]
    end
  end

  def test_a_busy_worker_accepts_requests
    serve_with_gate([1, 2]) do |worker, open_gate|
      50.times { worker.get }
      held = worker.start(target: "/held")
      worker.get
      open_gate.call
      assert_equal "/held", worker.response(held)[2]
    end
  end

  def test_more_requests_than_threads
    serve(app(SLEEPER), threads: [2, 4], links: 3) do |worker, front|
      ids = Array.new(60) { |i| [i % 3, worker.start(target: "/#{i}?#{[0, 0.005, 0.02][i % 3]}", link: i % 3)] }
      ids.each_with_index { |(_, id), i| assert_equal "/#{i}", worker.response(id)[2] }
      eventually("all are finished") { front.slot(0)[:requests] == 60 && front.slot(0)[:serving].all?(&:zero?) }
    end
  end

  def test_answers_go_out_on_the_link_of_the_request
    serve(app(SLEEPER), links: 2) do |worker|
      [0, 1, 1, 0].each do |link|
        id = worker.start(link: link)
        assert_equal link, worker.take_for(id).link
      end
    end
  end

  def test_the_scoreboard_shows_what_is_being_served
    threads_only "what waits is not on the scoreboard"
    serve(app(SLEEPER), threads: [2, 2], links: 2) do |worker, front|
      id = worker.start(target: "/?1", link: 1)
      eventually("it is shown") { front.slot(0)[:serving].include?((1 << 63) | (1 << 32) | id) }
      worker.response(id)
      eventually("it is gone") { front.slot(0)[:serving].all?(&:zero?) }
    end
  end

  def test_an_idle_worker_sleeps
    [[1, 1], [1, 5]].product([1, 2]).each do |threads, links|
      serve(app(SLEEPER), threads: threads, links: links) do |worker|
        Array.new(5) { worker.start(target: "/?0.05") }.each { |id| worker.response(id) }
        20.times { worker.get }
        sleep 0.5
        before = [switches(worker.pid), ticks(worker.pid)]
        sleep 1
        assert_operator switches(worker.pid) - before.first, :<=, 20, "wake-ups of an idle worker in a second"
        assert_operator ticks(worker.pid) - before.last, :<=, 5, "hundredths of a second of CPU"
      end
    end
  end

  def ticks(pid)
    File.read("/proc/#{pid}/stat").split(") ").last.split.values_at(11, 12).sum(&:to_i)
  end

  # Ruby's own timer thread is not counted, because this library does not control it.
  def switches(pid)
    Dir["/proc/#{pid}/task/*/status"].sum { |status| File.read(status)[/^voluntary_ctxt_switches:\s*(\d+)/, 1].to_i }
  end

  # An answer that takes longer than the others may wait is sent separately, so only a batch during which the machine was not busy
  # counts. The app does not sleep, not even for zero seconds, because a sleep lets another thread run.
  def test_a_batch_is_answered_in_few_writes
    serve(app('[200, {}, ["x"]]')) do |worker|
      100.times { worker.get }
      reads = (1..10).lazy.map { |batch| reads_of_a_batch(worker, 5000 + (batch * 100)) }
      assert reads.any? { |count| count <= 48 }, "each batch of 64 answers took more than 48 writes"
    end
  end

  # Returns the number of reads that 64 answers take.
  def reads_of_a_batch(worker, ids)
    worker.send_frame((1..64).map { |id| Wire.request(ids + id) }.join)
    reads = 0
    reads += 1 until worker.frames.length >= 64 || worker.quiet?(2)
    assert_equal 64, worker.frames.length
    worker.frames.clear
    reads
  end

  def test_a_killed_thread_is_replaced
    serve(MEETING.sub('path = env["PATH_INFO"]', 'path = env["PATH_INFO"]; Thread.exit if path == "/die"'), threads: [3, 3]) do |worker|
      6.times { assert_equal 500, worker.get("/die").first }
      ids = Array.new(3) { worker.start(target: "/3") }
      assert_equal(["together"], ids.map { |id| worker.response(id)[2] }.uniq)
    end
  end

  def test_raising_into_the_main_thread
    serve(app('t = Thread.main; Thread.new { sleep 0.1; t.raise("stray") }; [200, {}, ["x"]]')) do |worker, front|
      worker.get
      eventually("it is reported") { front.log.include?("stray") }
      assert_equal 200, worker.get.first
    end
  end

  def test_timeouts_reach_a_body_that_waits_for_its_window
    text = 'require "timeout"; b = Object.new; def b.each; Timeout.timeout(0.5) { loop { yield "x" * 50_000 } }; rescue Timeout::Error; $t = 1; raise; end; env["PATH_INFO"] == "/t" ? [200, {}, [$t.to_s]] : [200, {}, b]'
    [[1, 1], [1, 2]].each do |threads|
      serve(app(text), threads: threads) do |worker|
        id = worker.start
        assert_predicate worker.take_for(id, :end), :end?
        assert_equal "1", worker.get("/t")[2]
      end
    end
  end
end
