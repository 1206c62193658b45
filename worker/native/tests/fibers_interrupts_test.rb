# frozen_string_literal: true

# Interrupts of a request on a fiber (a `Timeout`, a client that disconnects), and rules that defer them: as with threads, but per request.
class FibersInterruptsTest < Case
  def fibers(rackup, count = 20, **options, &)
    serve("require 'timeout'\n#{rackup}", fibers: count, **options, &)
  end

  # An app that evaluates one of these texts per request; the query names it.
  def requests(texts, **options, &)
    trials = texts.map { |name, text| "#{name.inspect} => ->(env) {\n#{text}\n}" }
    fibers(<<~RUBY, **options, &)
      # The class that Timeout raises in its block: since Ruby 3.4 (timeout 0.4.2) it is, as with threads, another one than outside.
      EXPIRED = RUBY_VERSION >= "3.4" ? Timeout::ExitException : Timeout::Error
      TRIALS = { #{trials.join(",\n")} }
      run ->(env) { [200, {}, [TRIALS.fetch(env["QUERY_STRING"]).call(env).inspect]] }
    RUBY
  end

  INNER = {
    "a fiber" => "begin Timeout.timeout(0.1) { Fiber.new { sleep }.resume }; rescue Timeout::Error => e; e.message; end",
    "a fiber of a fiber" => "begin Timeout.timeout(0.1) { Fiber.new { Fiber.new { sleep }.resume }.resume }; rescue Timeout::Error => e; e.message; end",
    "next" => "begin Timeout.timeout(0.1) { Enumerator.new { |y| sleep; y << 1 }.next }; rescue Timeout::Error => e; e.message; end",
    "next, the second time" => <<~RUBY,
      each = Enumerator.new { |y| y << 1; sleep; y << 2 }
      each.next
      begin Timeout.timeout(0.1) { each.next }; rescue Timeout::Error => e; e.message; end
    RUBY
    "peek" => "begin Timeout.timeout(0.1) { Enumerator.new { |y| sleep; y << 1 }.peek }; rescue Timeout::Error => e; e.message; end",
    "a read" => "r, = IO.pipe; begin Timeout.timeout(0.1) { Fiber.new { r.read(1) }.resume }; rescue Timeout::Error => e; e.message; end",
    "its ensure" => <<~RUBY,
      seen = []
      begin
        Timeout.timeout(0.1) { Fiber.new { begin sleep; ensure seen << $!.class; end }.resume }
      rescue Timeout::Error
        seen << :outside
      end
      seen == [EXPIRED, :outside] ? "execution expired" : seen
    RUBY
    "computing" => <<~RUBY
      begin
        Timeout.timeout(0.1) { Fiber.new { nil while true }.resume }
      rescue Timeout::Error => e
        e.message
      end
    RUBY
  }.freeze

  def test_a_timeout_around_waits_in_inner_fibers
    requests(INNER, slice_us: 5_000, blocking_us: 100_000) do |worker|
      INNER.each_key do |name|
        id = worker.start(target: "/?#{name}")
        assert_equal "execution expired".inspect, worker.response(id, timeout: 20)[2], name
      end
    end
  end

  # Evaluates the text in a fiber of `Fiber.schedule` instead.
  def scheduled(text)
    "done = Queue.new; Fiber.schedule { done << begin\n#{text}\nend }; done.pop"
  end

  def test_a_timeout_in_a_scheduled_fiber_around_waits_in_inner_fibers
    requests(INNER.transform_values { |text| scheduled(text) }, slice_us: 5_000, blocking_us: 100_000) do |worker|
      INNER.each_key do |name|
        id = worker.start(target: "/?#{name}")
        assert_equal "execution expired".inspect, worker.response(id, timeout: 20)[2], name
      end
    end
  end

  # The time-out is set in a fiber that is left inside the block, and goes on elsewhere.
  MOVED = {
    "by a scheduled fiber" => "Fiber.schedule { done << inner.resume }",
    "by a fiber of a scheduled one" => "Fiber.schedule { done << Fiber.new { inner.resume }.resume }",
    "late, by a scheduled fiber" => "sleep 0.3; Fiber.schedule { done << inner.resume }",
    "by the request, late" => "sleep 0.3; done << inner.resume"
  }.freeze
  # The action of the fiber afterwards.
  GOING_ON = { "waits" => "sleep", "waits in a fiber of its own" => "Fiber.new { Fiber.new { sleep }.resume }.resume" }.freeze

  def test_a_timeout_goes_with_the_fiber_that_has_set_it
    trials = MOVED.to_a.product(GOING_ON.to_a).to_h do |(how, resume), (what, waits)|
      ["#{how}, #{what}".tr(" ", "_"), <<~RUBY]
        done = Queue.new
        inner = Fiber.new do
          Timeout.timeout(0.2) { Fiber.yield; #{waits} }
        rescue Timeout::Error
          :inner
        end
        inner.resume
        #{resume}
        begin # it waits in another fiber meanwhile, and that has set nothing
          other = Fiber.new { done.pop }.resume
        rescue Timeout::Error
          other = :outer
        end
        other
      RUBY
    end
    requests(trials, slice_us: 5_000) do |worker|
      ids = trials.keys.to_h { |name| [name, worker.start(target: "/?#{name}")] }
      ids.each { |name, id| assert_equal ":inner", worker.response(id, timeout: 20)[2], name }
    end
  end

  # The child has no loop.
  def test_a_timeout_in_a_child_that_the_app_has_forked
    app = app(<<~'RUBY')
      late = proc { from = Time.now; nil until Time.now - from > 10 }
      reader, writer = IO.pipe
      codes = { waits: proc { sleep 10 }, reads: proc { reader.read }, computes: late }.transform_values do |block|
        pid = fork do
          begin
            Timeout.timeout(5) { Timeout.timeout(0.2, ArgumentError, &block) }
          rescue ArgumentError => e
            exit!(e.message == "execution expired" ? 7 : 8)
          end
          exit!(1)
        end
        Process.wait(pid)
        $?.exitstatus
      end
      writer.close
      [200, {}, [codes.inspect]]
    RUBY
    fibers(app) { |worker| assert_equal({ waits: 7, reads: 7, computes: 7 }.inspect, worker.get(timeout: 40)[2]) }
  end

  # The fiber waits outside of the time-out's block.
  def test_a_timeout_of_a_fiber_that_has_yielded
    app = app(<<~'RUBY')
      inner = Fiber.new do
        Timeout.timeout(0.1) { Fiber.yield; sleep }
      rescue Timeout::Error
        "inner"
      end
      inner.resume
      sleep 0.3
      [200, {}, [inner.resume]]
    RUBY
    fibers(app) { |worker| assert_equal "inner", worker.get[2] }
  end

  # The fiber that set it is gone, or will never go on; its memory may have been reused.
  def test_a_timeout_of_a_fiber_that_the_app_has_dropped
    app = app(<<~'RUBY')
      5.times { Fiber.new { Timeout.timeout(0.05) { Fiber.yield } }.resume }
      GC.start
      others = Array.new(50) { Fiber.new { sleep 0.01; Fiber.yield } }.each(&:resume)
      sleep 0.2
      others.each(&:resume)
      [200, {}, ["fine"]]
    RUBY
    fibers(app, 3) { |worker| 10.times { assert_equal "fine", worker.get[2] } }
  end

  LOCKED = <<~RUBY
    path = File.join(Dir.pwd, "locked")
    holder = File.open(path, "w").tap { |file| file.flock(File::LOCK_EX) }
    begin
      Timeout.timeout(0.2) { File.open(path) { |file| file.flock(File::LOCK_EX) } }
    rescue Timeout::Error => e
      e.message
    ensure
      holder.close
    end
  RUBY

  # The call blocks the thread, so the loop cannot raise: another thread does.
  def test_a_timeout_of_a_call_that_stops_the_thread
    trials = { "flock" => LOCKED, "inner" => "Fiber.new { #{LOCKED} }.resume", "scheduled" => scheduled(LOCKED),
               "inner_of_scheduled" => scheduled("Fiber.new { #{LOCKED} }.resume") }
    requests(trials.merge("other" => "1"), blocking_us: 100_000) do |worker|
      trials.each_key do |trial|
        ids = [trial, "other", "other", "other"].map { |name| worker.start(target: "/?#{name}") }
        answers = ids.map { |id| worker.response(id, timeout: 20)[2] }
        assert_equal ["execution expired".inspect, "1", "1", "1"], answers, trial
      end
    end
  end

  NEVER = {
    # It is raised when the block is over, and not before.
    "deferred" => <<~RUBY,
      seen = []
      begin
        Timeout.timeout(0.1) do
          Thread.handle_interrupt(EXPIRED => :never) { sleep 0.3; seen << :slept << Thread.pending_interrupt? }
          seen << :after
        end
      rescue Timeout::Error
        seen << :raised
      end
      seen
    RUBY
    "immediate inside" => <<~RUBY,
      seen = []
      begin
        Timeout.timeout(0.1) do
          Thread.handle_interrupt(Exception => :never) do
            sleep 0.3
            seen << :slept
            begin
              Thread.handle_interrupt(Exception => :immediate) { seen << :not_reached }
            ensure
              seen << :put_back
            end
          end
        end
      rescue Timeout::Error
        seen << :raised
      end
      seen
    RUBY
    "on blocking" => <<~RUBY,
      seen = []
      begin
        Timeout.timeout(0.05) do
          Thread.handle_interrupt(EXPIRED => :on_blocking) do
            late = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 0.3
            nil until Process.clock_gettime(Process::CLOCK_MONOTONIC) > late
            seen << :computed
            sleep
          end
        end
      rescue Timeout::Error
        seen << :raised
      end
      seen
    RUBY
    "another class" => <<~RUBY,
      begin
        Timeout.timeout(0.1) { Thread.handle_interrupt(IOError => :never) { sleep } }
      rescue Timeout::Error
        [:raised]
      end
    RUBY
    "the inner fiber" => <<~RUBY,
      seen = []
      begin
        Timeout.timeout(0.1) { Thread.handle_interrupt(Exception => :never) { Fiber.new { sleep 0.3; seen << :slept }.resume } }
      rescue Timeout::Error
        seen << :raised
      end
      seen
    RUBY
    "wrong" => "begin Thread.handle_interrupt(IOError => :sometimes) { }; rescue ArgumentError => e; e.message; end",
    "no block" => "begin Thread.handle_interrupt(IOError => :never); rescue ArgumentError => e; e.message; end"
  }.freeze
  OUTCOMES = {
    "deferred" => [:slept, true, :raised], "immediate inside" => %i[slept put_back raised], "on blocking" => %i[computed raised],
    "another class" => [:raised], "the inner fiber" => %i[slept raised], "wrong" => "unknown mask signature", "no block" => "block is needed."
  }.freeze

  def test_what_is_kept_out_comes_when_that_is_over
    requests(NEVER, slice_us: 5_000) do |worker|
      # All at once: no request defers the interrupts of another.
      ids = OUTCOMES.keys.to_h { |name| [name, worker.start(target: "/?#{name}")] }
      ids.each { |name, id| assert_equal OUTCOMES[name].inspect, worker.response(id)[2], name }
    end
  end

  def test_what_a_scheduled_fiber_keeps_out_comes_when_that_is_over
    requests(NEVER.transform_values { |text| scheduled(text) }, slice_us: 5_000) do |worker|
      ids = OUTCOMES.keys.to_h { |name| [name, worker.start(target: "/?#{name}")] }
      ids.each { |name, id| assert_equal OUTCOMES[name].inspect, worker.response(id)[2], name }
    end
  end

  # As in connection_pool: a connection that was taken is always put back.
  POOL = <<~'RUBY'
    POOL = Queue.new
    POOL << :connection
    LOG = Queue.new
    def with
      Thread.handle_interrupt(Exception => :never) do
        one = POOL.pop
        begin
          sleep 0.2 # it is being set up
          Thread.handle_interrupt(Exception => :immediate) { yield one }
        ensure
          sleep 0.05
          POOL << one
        end
      end
    end
    run lambda { |env|
      case env["PATH_INFO"]
      when "/size" then [200, {}, [POOL.size.to_s]]
      when "/log" then [200, {}, [Array.new(LOG.size) { LOG.pop }.join(" ")]]
      when "/late" then begin Timeout.timeout(0.1) { with { sleep } }; rescue Timeout::Error; [200, {}, ["late"]]; end
      when "/innocent"
        12.times { sleep 0.05 }
        [200, {}, ["innocent"]]
      else
        begin
          with { sleep }
        rescue Firebrick::ClientGone => e
          LOG << e.class.name
          raise
        end
      end
    }
  RUBY

  def test_a_client_that_leaves_is_not_raised_where_that_is_kept_out
    fibers(POOL) do |worker|
      ids = Array.new(3) { worker.start(target: "/hold") }
      sleep 0.1
      ids.each { |id| worker.send_frame(Wire.frame(:abort, id)) }
      ids.each { |id| worker.take_for(id, :end, timeout: 20) }
      assert_equal "1", worker.get("/size")[2]
      assert_equal "Firebrick::ClientGone Firebrick::ClientGone Firebrick::ClientGone", worker.get("/log")[2]
    end
  end

  def test_timeouts_meet_their_own_requests
    fibers(POOL, slice_us: 5_000) do |worker|
      ids = Array.new(12) { |at| worker.start(target: at.even? ? "/late" : "/innocent") }
      answers = ids.map { |id| worker.response(id, timeout: 30)[2] }
      assert_equal %w[late innocent] * 6, answers
      assert_equal "1", worker.get("/size")[2]
    end
  end

  def test_a_library_that_takes_the_scheduler_away
    app = app(<<~RUBY)
      case env["PATH_INFO"]
      when "/take" then Fiber.set_scheduler(nil); [200, {}, [Fiber.scheduler.class.name]]
      when "/try"
        begin
          Fiber.set_scheduler(Class.new { def io_wait(*) = 1; def kernel_sleep(*) = 1; def block(*) = 1; def unblock(*) = 1; def close = nil; def fiber_interrupt(*) = 1 }.new)
        rescue FiberError => e
          [200, {}, [e.class.name]]
        ensure
          Fiber.set_scheduler(nil)
        end
      when "/sleep" then sleep 0.5; [200, {}, ["slept"]]
      else [200, {}, ["quick"]]
      end
    RUBY
    fibers(app) do |worker, front|
      assert_equal "Firebrick::Fibers::Scheduler", worker.get("/take")[2]
      assert_equal "FiberError", worker.get("/try")[2]
      slow = Array.new(3) { worker.start(target: "/sleep") }
      quick = worker.start
      order = Array.new(4) { worker.take { |frame| frame.kind == :response } }.map(&:id)
      assert_equal quick, order.first
      assert_equal slow.sort, order.drop(1).sort
      worker.drain
      assert_equal ["exit", 0], front.ended(worker).first(2)
    end
  end

  # Run in a request, or in a separate fiber.
  BY = {
    "request" => ->(text) { "begin\n#{text}\nend" },
    "scheduled fiber" => ->(text) { "begin; done = Queue.new; Fiber.schedule { done << begin\n#{text}\nend }; done.pop; end" }
  }.freeze

  BY.each do |who, wrap|
    define_method("test_the_status_of_a_child_is_that_of_the_#{who.tr(' ', '_')}") do
      app = app(<<~RUBY)
        code = env["QUERY_STRING"].to_i
        answer = #{wrap.call(<<~'INNER')}
          system("exit #{code}")
          3.times { sleep 0.02 * (code % 3) }
          late = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 0.03
          nil until Process.clock_gettime(Process::CLOCK_MONOTONIC) > late
          [$?.exitstatus, $?.pid > 1].join(" ")
        INNER
        [200, {}, [answer]]
      RUBY
      fibers(app, slice_us: 5_000) do |worker|
        ids = (1..10).map { |code| worker.start(target: "/?#{code}") }
        assert_equal((1..10).map { |code| "#{code} true" }, ids.map { |id| worker.response(id, timeout: 30)[2] })
      end
    end

    define_method("test_the_directory_of_a_block_is_that_of_the_#{who.tr(' ', '_')}") do
      app = app(<<~RUBY)
        base = File.realpath(File.dirname(__FILE__))
        name = env["QUERY_STRING"]
        seen = #{wrap.call(<<~'INNER')}
          if name.empty?
            6.times.map { sleep 0.02; Dir.pwd }.uniq
          else
            Dir.mkdir(name) unless File.exist?(name)
            inside = Dir.chdir(name) do |path|
              late = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 0.03
              nil until Process.clock_gettime(Process::CLOCK_MONOTONIC) > late
              [path, *4.times.map { sleep 0.02; Dir.pwd }, `pwd`.chomp, Dir.chdir("..") { sleep 0.02; Dir.pwd }].uniq
            end
            inside + [Dir.pwd]
          end
        INNER
        [200, {}, [seen.map { |one| one.delete_prefix(base) }.inspect]]
      RUBY
      fibers(app, slice_us: 5_000) do |worker|
        ids = (1..8).map { |at| [at, worker.start(target: at.odd? ? "/?d#{at}" : "/")] }
        answers = ids.map { |at, id| [at, worker.response(id, timeout: 30)[2]] }
        answers.each do |at, answer|
          wanted = at.odd? ? ["d#{at}", "/d#{at}", "", ""] : [""]
          assert_equal wanted.inspect, answer
        end
      end
    end
  end

  # The fiber is left inside its block for good.
  def test_the_directory_of_a_scheduled_fiber_that_is_lost
    app = app(<<~'RUBY')
      base = Dir.pwd
      Dir.mkdir("lost") unless File.exist?("lost")
      Fiber.schedule { Dir.chdir("lost") { Fiber.new { 1 }.transfer } }
      here = [Dir.pwd, (sleep 0.02; Dir.pwd)]
      [200, {}, [(here.uniq == [base]).to_s]]
    RUBY
    fibers(app) { |worker| 3.times { assert_equal "true", worker.get[2] } }
  end
end
