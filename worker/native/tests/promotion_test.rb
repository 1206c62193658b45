# frozen_string_literal: true

# A worker that has finished leaves a template behind, with its memory.
class PromotionTest < Case
  COUNTING = <<~'RUBY'
    served = []
    Firebrick.after_fork { |index| $stderr.puts "after_fork #{index}" }
    Firebrick.before_fork { $stderr.puts "before_fork" }
    Firebrick.before_refork { $stderr.puts "before_refork with #{Thread.list.size} thread" }
    Firebrick.before_worker_exit { |index| $stderr.puts "before_worker_exit #{index}" }
    run lambda { |env|
      served << env["PATH_INFO"]
      sleep 0.2 if env["PATH_INFO"] == "/slow"
      [200, {}, [served.join(" ")]]
    }
  RUBY

  THREADS = [[1, 1], [3, 3], [1, 5]].freeze

  def test_the_next_workers_have_its_memory
    THREADS.each do |threads|
      serve(COUNTING, threads: threads, links: 2) do |worker, front|
        worker.get("/first")
        heir = promoted(front, worker)
        assert_equal "/first /second", heir.get("/second")[2]
        assert_equal "/first /third", front.fork_worker(2).get("/third", link: 1)[2]
        assert_equal front.heir, parent(heir.pid)
        refute_equal worker.pid, front.heir
      end
    end
  end

  def test_requests_that_it_has_are_answered_first
    serve(COUNTING, threads: [3, 3]) do |worker, front|
      ids = Array.new(3) { worker.start(target: "/slow") }
      control = worker.promote
      worker.drain
      ids.each { |id| assert_equal 200, worker.response(id).first }
      assert_equal ["exit", 0], front.ended(worker).first(2)
      front.follow(control)
      assert_equal "/slow /slow /slow /next", front.fork_worker(1).get("/next")[2]
    end
  end

  def test_hooks_run_where_they_belong
    serve(COUNTING, threads: [2, 2]) do |worker, front|
      worker.get
      promoted(front, worker)
      lines = front.log.lines(chomp: true)
      assert_equal ["before_fork", "after_fork 0"], lines.first(2)
      assert_equal ["after_fork 1", "before_fork", "before_refork with 1 thread", "before_worker_exit 0"], lines.drop(2).sort
      assert_operator lines.index("before_refork with 1 thread"), :<, lines.rindex("before_fork")
    end
  end

  def test_many_generations_leave_nothing_behind
    serve(app("[200, {}, [caller.size.to_s]]"), threads: [2, 3], links: 2) do |worker, front|
      depths = []
      figures = Array.new(8) do |number|
        busy = Array.new(3) { worker.start }
        depths.concat(busy.map { |id| worker.response(id)[2].to_i })
        worker = promoted(front, worker, number + 1)
        pid = front.heir
        [Dir["/proc/#{pid}/fd/*"].size, File.readlines("/proc/#{pid}/maps").grep(/scoreboard/).size]
      end
      assert_operator depths.uniq.size, :<=, 2, "of the main thread and of the others: #{depths}"
      fds, maps = figures.drop(2).transpose
      assert_equal 1, maps.uniq.size, figures.inspect
      # A thread keeps its wake-up descriptor for the next worker. The third thread is started when it is needed, in any generation.
      assert_operator fds.max - fds.min, :<=, 1, figures.inspect
    end
  end

  def test_a_raising_hook_is_reported
    serve(%(Firebrick.before_refork { raise "not now" }\nrun ->(_) { [200, {}, []] })) do |worker, front|
      control = worker.promote
      worker.drain
      error = assert_raises(FakeFront::Gone) { front.follow(control) }
      assert_match(/not now.*config\.ru:1/m, error.message)
    end
  end

  def test_a_template_whose_front_is_gone_ends
    serve(COUNTING) do |worker, front|
      control = worker.promote
      worker.drain
      front.ended(worker)
      front.follow(control)
      pid = front.heir
      control.close
      eventually("the template to end") { !alive?(pid) }
    end
  end

  def test_threads_of_the_app_do_not_follow
    ticking = <<~'RUBY'
      ticks = 0
      Firebrick.after_fork { Thread.new { loop { ticks += 1; sleep 0.01 } } }
      lock = Mutex.new
      Firebrick.after_fork { Thread.new { lock.synchronize { sleep } } if Process.ppid == PARENT }
      PARENT = Process.pid
      run ->(env) { env["PATH_INFO"] == "/lock" ? [200, {}, [lock.synchronize { "free" }]] : [200, {}, ["#{Thread.list.size} #{ticks.positive?}"]] }
    RUBY
    serve(ticking) do |worker, front|
      assert_equal "4 true", worker.tap { sleep 0.1 }.get[2]
      heir = promoted(front, worker)
      assert_equal "3 true", heir.get[2]
      assert_equal "free", heir.get("/lock")[2]
    end
  end

  def test_signals_mean_what_they_mean_to_a_template
    serve(COUNTING) do |worker, front|
      worker.get
      heir = promoted(front, worker)
      %w[TERM HUP URG].each { |name| Process.kill(name, front.heir) }
      assert_equal "/ /again", heir.get("/again")[2]
      Process.kill("TERM", heir.pid)
      heir.take { |frame| frame.kind == :stopping }
      front.tell("kill", heir.pid, "KILL")
      assert_equal ["signal", 9], front.ended(heir).first(2)
    end
  end

  private

  # Returns a worker of the template that the worker leaves behind.
  def promoted(front, worker, index = 1)
    control = worker.promote
    worker.drain
    front.follow(control)
    front.fork_worker(index)
  end

  def parent(pid) = File.read("/proc/#{pid}/stat")[/\) \S (\d+)/, 1].to_i
end
