# frozen_string_literal: true

# Calls that block a thread's fibers are logged with their place, and counted.
class BlockingTest < Case
  # Holds the lock in another process, which releases it after the given number of seconds.
  HELP = <<~RUBY
    require "tempfile"
    LOCK = Tempfile.create("lock").path
    class Object
      def locked(seconds)
        ready, held = IO.pipe
        holder = fork { File.open(LOCK) { |file| file.flock(File::LOCK_EX); held.write("x"); held.close; sleep seconds } }
        held.close
        ready.read(1)
        yield
      ensure
        Process.wait(holder) if holder
      end
      def cpu = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID)
    end
  RUBY

  def blocking(text, limit_ms: 100, fibers: 20, slice_us: 10_000, **options, &block)
    body = "path = env['PATH_INFO']\nanswer = begin\n#{text}\nend\n[200, {}, [answer.inspect]]"
    serve("#{HELP}#{app(body)}", fibers: fibers, slice_us: slice_us, blocking_us: limit_ms * 1000, **options, &block)
  end

  def told(front) = front.log.lines.grep(/blocking call/)

  # The next line about a blocking call.
  def await(front, count = 1)
    eventually("it is told") { told(front).length >= count }
    told(front)
  end

  def test_a_lock_of_a_file
    blocking("locked(0.3) { File.open(LOCK) { |file|\nfile.flock(File::LOCK_EX) } }; 1") do |worker, front|
      worker.get("/lock", fields: [%w[X-Request-Id abc]])
      line = await(front).first
      assert_match(%r{firebrick\[\d+\]: warning: worker 0 \(pid \d+\): blocking call of \d{3,} ms in (File#)?flock \(config\.ru:\d+:in .*\), GET /lock, request abc$}, line)
      assert_operator front.slot(0)[:blocking_calls], :>=, 1
      assert_operator front.slot(0)[:blocked_us], :>=, 100_000
    end
  end

  def test_what_waits_or_shares_is_none
    text = "case path when '/sleep' then sleep 0.3 when '/spin' then (from = cpu; nil while cpu - from < 0.3) else 1 end"
    blocking(text) do |worker, front|
      ids = %w[/sleep /spin /spin /].map { |path| worker.start(target: path) }
      ids.each { |id| worker.response(id) }
      assert_empty told(front)
      assert_equal 0, front.slot(0)[:blocking_calls]
    end
  end

  def test_computing_that_cannot_be_left
    linux_only "a thread's CPU time is unknown"
    blocking("Firebrick.unsliced {\nfrom = cpu; nil while cpu - from < 0.3 }") do |worker, front|
      worker.get("/unsliced")
      assert_match(%r{ms in .* \(config\.ru:\d+.*\), GET /unsliced$}, await(front).first)
    end
  end

  # An extension that waits with Ruby's lock, so that no other Ruby thread can take the backtrace.
  def test_a_call_that_keeps_rubys_lock
    text = "$wait ||= Fiddle::Function.new(Fiddle::Handle::DEFAULT['usleep'], [Fiddle::TYPE_INT], Fiddle::TYPE_INT, need_gvl: true)\n$wait.call(400_000)"
    blocking("require 'fiddle'\n#{text} unless path == '/first'") do |worker, front|
      # By then the watching thread has started.
      2.times { worker.get("/first") }
      # Before Ruby 3.3 it is detected only when Ruby gives the other thread its turn at that moment.
      eventually("it is told with its place") do
        worker.get("/held")
        told(front).grep(%r{ms in \S+ \(config\.ru:\d+:in .*\), GET /held$}).any?
      end
    end
  end

  def test_a_call_that_computes
    linux_only "a thread's CPU time is unknown"
    blocking("$list ||= Array.new(1_500_000) { |i| i * 7919 % 1_000_003 }\n$list.sort.first", limit_ms: 20) do |worker, front|
      worker.get("/sort")
      eventually("the sort is told") { told(front).grep(%r{ms in (Array#)?sort \(config\.ru:\d+:in .*\), GET /sort$}).any? }
    end
  end

  def test_other_threads_that_compute_are_none
    text = "if path == '/busy' then $busy ||= Array.new(3) { Thread.new { loop { 1 } } }; 1 else 20.times { 10.times { cpu } } end"
    blocking(text) do |worker, front|
      worker.get("/busy")
      8.times.map { worker.start(target: "/") }.each { |id| worker.response(id, timeout: 30) }
      assert_empty told(front)
    end
  end

  def test_it_ends_with_the_worker
    blocking("Thread.list.map(&:name)") do |worker, front|
      assert_includes worker.get("/")[2], "blocking calls"
      worker.drain
      assert_equal ["exit", 0], front.ended(worker).first(2)
    end
  end

  # The loop of a second thread may have a long call before the first loop has called `watch_calls`, which is never called here.
  def test_a_call_that_is_seen_before_calls_are_watched
    blocking("Firebrick::Fibers.call_seen(1, 1, nil); Firebrick::Fibers.call_blocked(1, 1, 1_000, true, [nil, nil])", limit_ms: 0) do |worker, front|
      assert_equal 200, worker.get("/").first
      assert_empty told(front)
    end
  end

  def test_the_same_place_is_told_once
    wait = "$wait ||= Fiddle::Function.new(Fiddle::Handle::DEFAULT['usleep'], [Fiddle::TYPE_INT], Fiddle::TYPE_INT)\n$wait.call(200_000)"
    blocking("require 'fiddle'\n#{wait}") do |worker, front|
      4.times { worker.get("/") }
      eventually("all count") { front.slot(0)[:blocking_calls] == 4 }
      assert_equal 1, told(front).length, told(front).join
    end
  end

  def test_off
    blocking("Firebrick.unsliced { from = cpu; nil while cpu - from < 0.2 }; Thread.list.filter_map(&:name)", limit_ms: 0) do |worker, front|
      refute_includes worker.get("/")[2], "blocking calls"
      assert_empty told(front)
    end
  end
end
