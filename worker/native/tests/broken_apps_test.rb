# frozen_string_literal: true

# A broken app gets one response for each request, and the worker keeps serving.
class BrokenAppsTest < Case
  WAYS = {
    "raise" => 'raise "boom"', "exception" => 'raise Exception, "boom"', "script error" => "raise NotImplementedError",
    "throw" => "throw :nobody", "exit" => "exit", "abort" => 'abort "bye"', "stack" => "f = -> { f.() }; f.()",
    "memory" => "raise NoMemoryError", "nil" => "nil", "short" => "[200]", "no headers" => "[200, nil, []]",
    "no body" => "[200, {}, nil]", "int body" => "[200, {}, 5]", "int part" => "[200, {}, [5]]",
    "injection" => '[200, { "a" => "b\r\nc: d" }, []]', "nul" => '[200, { "a" => "\0" }, []]',
    "array injection" => '[200, { "a" => ["b\nc"] }, []]', "name injection" => '[200, { "a\nb" => "c" }, []]',
    "huge head" => '[200, { "a" => "b" * 1_000_000 }, []]', "odd headers" => "[200, 5, []]", "lambda exit" => "Thread.exit",
    "raising to_s" => 'o = Object.new; def o.to_s = raise("to_s"); [200, { "a" => o }, []]',
    "odd error" => 'e = StandardError.new; def e.message = raise("message"); def e.backtrace = nil; raise e',
    "binary error" => 'raise "\xff\xfe".b'
  }.freeze

  [[1, 1], [2, 3]].each do |threads|
    define_method("test_each_way_with_threads_#{threads.join('_')}") do
      rackup = app("case env['PATH_INFO']\n#{WAYS.map { |name, code| "when #{"/#{name}".inspect} then #{code}" }.join("\n")}\n" \
                   "else [200, {}, ['well']] end")
      serve(rackup, threads: threads) do |worker, front|
        WAYS.each_key do |name|
          status, _, body, = worker.get("/#{name}")
          assert_equal [500, "Internal Server Error\n"], [status, body], name
          assert_equal "well", worker.get("/")[2], "after #{name}"
        end
        assert_equal WAYS.length, front.slot(0)[:failures]
        assert_match(%r{RuntimeError: boom \(GET /raise\)\n.*config\.ru:}, front.log)
      end
    end
  end

  def test_exit_bang_ends_the_process
    serve(app("exit!(3)")) do |worker, front|
      id = worker.start(target: "/")
      assert_equal ["exit", 3], front.ended(worker).first(2)
      assert_includes front.slot(0)[:serving], (1 << 63) | id
    end
  end

  def test_a_killed_worker_is_reported
    serve(app("Process.kill(:KILL, Process.pid); sleep")) do |worker, front|
      worker.start
      how, code, peak = front.ended(worker)
      assert_equal ["signal", 9], [how, code]
      assert_operator peak, :>, 1000
    end
  end

  def test_development_shows_the_exception
    serve(app('raise "<b>boom</b>"'), environment: "development") do |worker|
      status, fields, body, = worker.get("/", fields: [["Accept", "text/html"]])
      assert_equal [500, ["text/html; charset=utf-8"]], [status, header(fields, "content-type")]
      assert_match(/&lt;b&gt;boom.*config\.ru/m, body)
      refute_includes body, "<b>"
      assert_match(/\ARuntimeError: <b>boom.*config\.ru/m, worker.get[2])
    end
  end

  def test_on_error
    rackup = <<~RUBY
      Firebrick.on_error { |error, env|
        raise "again" if env["PATH_INFO"] == "/raise"
        next 5 if env["PATH_INFO"] == "/five"
        next [500, { "a" => 1 }, 7] if env["PATH_INFO"] == "/odd"
        [503, { "x-error" => error.message }, ["sorry"]]
      }
      run ->(_) { raise "boom" }
    RUBY
    serve(rackup) do |worker|
      assert_equal [503, [%w[x-error boom]], "sorry", false], worker.get
      %w[/raise /five /odd].each { |path| assert_equal [500, "Internal Server Error\n"], worker.get(path).values_at(0, 2), path }
    end
  end

  def test_a_fork_without_a_block_answers_once
    serve(app('fork; [200, {}, ["x"]]')) do |worker|
      3.times { assert_equal "x", worker.get[2] }
      assert worker.quiet?(0.3)
    end
  end

  def test_a_forked_child_does_not_keep_the_links
    serve(app("pid = fork { sleep }; [200, {}, [pid.to_s]]")) do |worker, front|
      child = worker.get[2].to_i
      Process.kill("KILL", worker.pid)
      front.ended(worker)
      assert_raises(FakeFront::Gone) { worker.take(timeout: 5) }
    ensure
      Process.kill("KILL", child) if child
    end
  end
end
