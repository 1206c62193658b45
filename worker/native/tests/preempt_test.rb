# frozen_string_literal: true

# Fibers that compute for longer than a slice let the other fibers of their thread run.
class PreemptTest < Case
  # Before Ruby 3.2 fibers of Enumerators cannot wait for other fibers, so a fiber is not pre-empted inside `synchronize`.
  ENUMERATORS_WAIT = RUBY_VERSION >= "3.2"

  # Helpers of all apps here: `spin` computes until its block is true, and returns false if that never happens.
  HELP = <<~RUBY
    require "monitor"
    require "timeout"
    $go = false
    class Object
      def fib(n) = n < 2 ? n : fib(n - 1) + fib(n - 2)
      def cpu = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID)
      def spin(seconds = 5)
        from = cpu
        until yield
          return false if cpu - from > seconds
        end
        true
      end
    end
  RUBY

  def sliced(text, fibers: 20, slice_us: 10_000, before: "", **options, &block)
    rackup = "#{HELP}#{before}\n#{app("path = env['PATH_INFO']\nanswer = begin\n#{text}\nend\n[200, {}, [answer.inspect]]")}"
    serve(rackup, fibers: fibers, slice_us: slice_us, **options, &block)
  end

  def answers(worker, *targets)
    ids = targets.map { |target| worker.start(target: target) }
    ids.map { |id| worker.response(id, timeout: 60)[2] }
  end

  def test_one_that_computes_does_not_stop_the_others
    sliced("path == '/go' ? $go = true : spin { $go }") do |worker|
      assert_equal %w[true true true], answers(worker, "/hog", "/hog", "/go")
    end
  end

  def test_without_slices_it_does
    sliced("path == '/go' ? $go = true : spin(0.5) { $go }", slice_us: 0) do |worker|
      assert_equal %w[false true], answers(worker, "/hog", "/go")
    end
  end

  def test_on_every_thread
    text = "$at[Thread.current] = true; path == '/go' ? $go = true : spin { $go && $at.size == 2 }"
    sliced(text, before: "$at = {}", threads: [2, 2]) do |worker|
      assert_equal %w[true] * 9, answers(worker, *(["/hog"] * 8), "/go")
    end
  end

  def test_what_waits_goes_on
    sliced("path == '/hog' ? spin { $go } : (20.times { sleep 0.002 }; $go = true)") do |worker|
      assert_equal %w[true true], answers(worker, "/hog", "/wait")
    end
  end

  def test_those_that_compute_are_not_starved
    sliced("path == '/hog' ? spin { $go } : (from = cpu; nil while cpu - from < 0.001; $seen += 1; $go ||= $seen > 200)",
           before: "$seen = 0") do |worker|
      hog = worker.start(target: "/hog")
      300.times.each_slice(10) { |some| answers(worker, *some.map { "/short" }) }
      assert_equal "true", worker.response(hog, timeout: 30)[2]
    end
  end

  # Each kind of work, in fibers that take turns inside it.
  WORK = {
    sort: "a = Array.new(30_000) { |i| i * 7919 % 10_007 }; a.sort { |x, y| x <=> y } == a.sort_by { |x| x }",
    hash: "h = {}; 30_000.times { |i| h[i.to_s] = i }; n = 0; h.each { |_, v| n += v }; h[:new] = 1; n == (0...30_000).sum",
    regexp: "n = 0; ('ab12 ' * 5000).gsub(/([a-z]+)(\\d+)/) { $1 == 'ab' && $2 == '12' and n += 1; fib(3); n += 1 if $~[1] == 'ab' }; n == 10_000",
    json: "require 'json'; x = { 'a' => (1..3000).map { |i| { 'k' => [i, i.to_s, nil] } } }; JSON.parse(JSON.generate(x)) == x",
    raise: "begin; begin; fib(21); raise 'a'; rescue => e; fib(21); $!.equal?(e) or raise; raise IndexError; ensure; fib(21); end; " \
           "rescue IndexError => e; fib(21); e.cause.message == 'a' && $!.equal?(e); end",
    catch: "catch(:out) { 10_000.times { |i| catch(:in) { fib(4); throw :in }; throw :out, true if i == 9_000 } }",
    enumerator: "e = Enumerator.new { |y| 40.times { |i| fib(13); y << i } }; r = []; loop { r << e.next; fib(13) }; r == [*0...40]",
    fiber: "f = Fiber.new { |x| 20.times { fib(13); x = Fiber.yield(x + 1) } }; v = 0; 20.times { v = f.resume(v); fib(12) }; v == 20",
    local: "x = Thread.current[:mine] = Object.new; fib(22); Thread.current[:mine].equal?(x)",
    monitor: "20.times { MONITOR.synchronize { MONITOR.synchronize { n = $n; fib(13); $n = n + 1 } } }; true",
    timeout: "begin; Timeout.timeout(0.03) { spin { false } }; rescue Timeout::Error; :timeout; end == :timeout",
    objects: "n = 0; ObjectSpace.each_object(Class) { n += 1; fib(6) }; n > 100"
  }.freeze

  def test_results_are_right
    kinds = WORK.map { |name, code| "'/#{name}' => -> { #{code} }" }
    before = "KINDS = { #{kinds.join(",\n")} }\nMONITOR = Monitor.new; $n = 0"
    sliced("path == '/n' ? $n : KINDS.fetch(path).call", before: before) do |worker|
      targets = WORK.keys.map { |name| "/#{name}" } * 2
      assert_equal targets.product(["true"]), targets.zip(answers(worker, *targets))
      assert_equal ["40"], answers(worker, "/n")
    end
  end

  def test_results_are_right_while_objects_are_collected_all_the_time
    text = "fib = ->(n) { n < 2 ? n : fib.(n - 1) + fib.(n - 2) }; GC.stress = path != '/calm'; " \
           "e = Enumerator.new { |y| 3.times { |i| fib.(5); y << i.to_s } }; s = +''; loop { s << e.next << fib.(5).to_s }; " \
           "begin; raise s; rescue => x; fib.(5); x.message == '051525' && $!.equal?(x); end"
    sliced(text) do |worker|
      assert_equal ["true"] * 5, answers(worker, *%w[/a /b /c /d /calm])
    end
  end

  # Each switch between the app's own fibers carries a value or an exception: all of them arrive, however often other fibers run in between.
  CARRIED = {
    values: "f = Fiber.new { |x| loop { fib(9); x = Fiber.yield(x + 1) } }; v = 0; 4_000.times { v = f.resume(v) }; v == 4_000",
    transferred: "back = Fiber.current; f = Fiber.new { |x| loop { fib(9); x = back.transfer(x + 1) } }; v = 0; 4_000.times { v = f.transfer(v) }; v == 4_000",
    next: "e = Enumerator.new { |y| n = 0; loop { fib(9); y << (n += 1) } }; (1..4_000).all? { |i| e.next == i }",
    errors: "f = Fiber.new { loop { begin; Fiber.yield(1); rescue RuntimeError => x; fib(9); Fiber.yield(x.message); end } }; f.resume; " \
            "2_000.times.all? { |i| (f.raise(RuntimeError, i.to_s) == i.to_s).tap { f.resume } }"
  }.freeze

  def test_what_fibers_give_each_other_arrives
    kinds = CARRIED.map { |name, code| "'/#{name}' => -> { #{code} }" }
    sliced("KINDS.fetch(path).call", before: "KINDS = { #{kinds.join(",\n")} }", slice_us: 1_000) do |worker|
      targets = CARRIED.keys.map { |name| "/#{name}" } * 3
      assert_equal targets.product(["true"]), targets.zip(answers(worker, *targets))
    end
  end

  def test_a_lock_of_one_that_was_left
    text = "path == '/holds' ? (LOCK.lock; begin; spin { $go } ensure LOCK.unlock; end) : ($go = true; LOCK.synchronize { LOCK.owned? })"
    sliced(text, before: "LOCK = Mutex.new") do |worker|
      assert_equal %w[true true true], answers(worker, "/holds", "/wants", "/wants")
    end
  end

  def test_a_monitor_of_one_that_was_left
    skip "is not left there" unless ENUMERATORS_WAIT
    text = "path == '/holds' ? LOCK.synchronize { spin { $go } } : ($go = true; LOCK.synchronize { LOCK.mon_owned? })"
    sliced(text, before: "LOCK = Monitor.new") do |worker|
      assert_equal %w[true true true], answers(worker, "/holds", "/wants", "/wants")
    end
  end

  def test_an_enumerator_wants_a_lock_of_one_that_computes
    text = "path == '/holds' ? LOCK.synchronize { spin(0.1) { false } } : Enumerator.new { |y| y << LOCK.synchronize { true } }.next"
    sliced(text, before: "LOCK = Mutex.new") do |worker|
      assert_equal %w[false true true], answers(worker, "/holds", "/wants", "/wants")
    end
  end

  def test_one_that_computes_in_an_enumerator
    skip "such fibers cannot be left" unless ENUMERATORS_WAIT
    sliced("path == '/go' ? $go = true : Enumerator.new { |y| y << spin { $go } }.next") do |worker|
      assert_equal %w[true true], answers(worker, "/hog", "/go")
    end
  end

  def test_not_while_a_file_is_loaded
    slow = "module Slow\n  A = 1\n  spin(0.1) { $others > 0 }\n  SEEN = $others\n  B = 2\nend\n"
    before = "$others = 0; Object.autoload :Slow, File.expand_path('slow.rb', __dir__)"
    sliced("path == '/n' ? $others += 1 : [Slow::B, Slow::SEEN]", before: before, files: { "slow.rb" => slow }) do |worker|
      assert_equal ["[2, 0]", "1", "[2, 0]"], answers(worker, "/load", "/n", "/load")
    end
  end

  def test_not_where_the_app_says_so
    text = "path == '/go' ? $go = true : [Firebrick.unsliced { Firebrick.unsliced { 1 }; spin(0.1) { $go } }, spin { $go }]"
    sliced(text) do |worker|
      assert_equal ["[false, true]", "true"], answers(worker, "/hog", "/go")
    end
  end

  def test_unsliced_without_a_server
    assert_equal "7", `#{RbConfig.ruby} -I#{FakeFront::LIB} -rfirebrick -e 'print Firebrick.unsliced { 7 }'`
  end

  # C code is not interrupted; waiting requests are served when it is done.
  def test_one_that_cannot_be_left
    text = "path == '/go' ? $go = true : (from = cpu; [*1..1000].shuffle.sort while cpu - from < 0.1; Array.new(400_000) { |i| -i }.sort.first)"
    sliced(text) do |worker|
      assert_equal %w[-399999 true], answers(worker, "/hog", "/go")
    end
  end

  def test_timeouts_end_the_fiber_that_they_are_for
    text = <<~RUBY
      kind = Class.new(StandardError)
      begin
        Timeout.timeout(path == "/short" ? 0.03 : 0.2, kind) { spin { false } }
      rescue kind => e
        e.message
      end
    RUBY
    sliced(text) do |worker|
      assert_equal ['"execution expired"'] * 6, answers(worker, *(%w[/short /long] * 3))
    end
  end

  # The main thread cannot be killed in this way.
  def test_the_thread_is_killed_under_those_that_were_left
    text = <<~RUBY
      case path
      when "/hog" then ($hogs[Thread.current] = true; spin(20) { $go })
      when "/go" then $go = true
      when "/where" then $hogs.keys.any? { |thread| thread != Thread.main }
      when "/kill"
        Thread.current.kill if Thread.current != Thread.main && $hogs[Thread.current]
        sleep 0.001
      end
    RUBY
    sliced(text, before: "$hogs = {}", threads: [2, 2]) do |worker|
      hogs = []
      # The test cannot choose the thread that takes a request up.
      eventually("a thread that is not the first has one", within: 30) do
        hogs << worker.start(target: "/hog") if hogs.length < 12
        answers(worker, "/where") == ["true"]
      end
      eventually("a thread is killed") { answers(worker, "/kill") == ["Internal Server Error\n"] }
      assert_equal %w[true], answers(worker, "/go")
      results = hogs.map { |id| worker.response(id, timeout: 60)[2] }
      # Requests of the thread that goes on, if it had any, end by themselves.
      assert_includes results, "Internal Server Error\n"
      assert_empty results - ["Internal Server Error\n", "true"]
      assert_equal %w[true] * 8, answers(worker, *%w[/go] * 8)
    end
  end

  def test_a_child_of_one_that_computes
    text = "pid = fork { exit!(fib(24) == 46_368 ? 7 : 1) }; fib(24); Process::Status.wait(pid).exitstatus"
    sliced(text) do |worker|
      assert_equal %w[7 7 7], answers(worker, *%w[/a /b /c])
    end
  end

  def test_bodies_that_compute
    rackup = "#{HELP}class Slow; def each; yield 'a'; spin { $go }; yield 'b'; end; end\n" \
             "#{app("env['PATH_INFO'] == '/go' ? ($go = true; [200, {}, ['go']]) : [200, {}, Slow.new]")}"
    serve(rackup, fibers: 5, slice_us: 10_000) do |worker|
      assert_equal %w[ab go], answers(worker, "/slow", "/go")
    end
  end
end
