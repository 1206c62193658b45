# frozen_string_literal: true

# The start and end of templates and workers.
class LifeTest < Case
  HELLO = 'run ->(_) { [200, {}, ["hello"]] }'

  def test_a_drained_worker_finishes_its_work_and_exits
    rackup = <<~RUBY
      at_exit { $stderr.puts "at_exit \#{Process.pid}" }
      Firebrick.before_worker_exit { |index| $stderr.puts "before_worker_exit \#{index}" }
      run ->(_) { sleep 0.3; [200, {}, ["done"]] }
    RUBY
    [[1, 1], [3, 3]].each do |threads|
      serve(rackup, threads: threads) do |worker, front|
        ids = Array.new(threads.last) { worker.start }
        worker.drain
        ids.each { |id| assert_equal "done", worker.response(id)[2] }
        assert_equal ["exit", 0], front.ended(worker).first(2)
        assert_equal ["before_worker_exit 0", "at_exit #{worker.pid}"], front.log.lines(chomp: true)
      end
    end
  end

  def test_another_version_of_the_wire_is_refused_before_the_app_is_loaded
    error = assert_raises(FakeFront::Gone) { serve("raise 'loaded'", wire: 1) { flunk } }
    assert_match(/speaks version 1 of its wire, the library in .* version #{Wire::VERSION}: .*Build both/, error.message)
    refute_includes error.message, "loaded"
  end

  def test_the_end_of_a_link_is_the_end_of_an_idle_worker
    [[1, 1], [3, 3]].each do |threads|
      serve(HELLO, threads: threads, links: 2) do |worker, front|
        worker.get
        worker.close
        assert_equal ["exit", 0], front.ended(worker).first(2)
      end
    end
  end

  def test_the_end_of_a_link_ends_busy_threads
    serve(app("sleep 60"), threads: [2, 2]) do |worker, front|
      worker.start
      sleep 0.1
      worker.close
      assert_equal ["exit", 0], front.ended(worker).first(2)
    end
  end

  def test_term_asks_for_the_drain
    [[1, 1], [2, 2]].each do |threads|
      serve(HELLO, threads: threads) do |worker, front|
        Process.kill("TERM", worker.pid)
        worker.take { |frame| frame.kind == :stopping }
        assert_equal "hello", worker.get[2]
        worker.drain
        assert_equal ["exit", 0], front.ended(worker).first(2)
      end
    end
  end

  def test_other_signals_mean_nothing
    serve(HELLO) do |worker, front|
      %w[INT HUP USR1 USR2 TTIN TTOU WINCH].each do |signal|
        Process.kill(signal, worker.pid)
        Process.kill(signal, front.pid)
      end
      Process.kill("TERM", front.pid)
      assert_equal "hello", worker.get[2]
      assert_equal "hello", front.fork_worker.get[2]
    end
  end

  def test_pwr_writes_backtraces
    [[1, 1], [2, 2]].each do |threads|
      serve(app("def stuck = sleep\nstuck"), threads: threads) do |worker, front|
        worker.start
        sleep 0.2
        Process.kill("PWR", worker.pid)
        eventually("backtraces") { front.log.match?(/worker 0 \(pid #{worker.pid}\): .*config\.ru:.*stuck/) }
      end
    end
  end

  # Timed waits that Ruby ends early when the main thread gets a signal. The main thread is the one that serves.
  WAITS = {
    "condition" => "m = Mutex.new; m.synchronize { ConditionVariable.new.wait(m, 1) }",
    "mutex" => "m = Mutex.new; m.synchronize { m.sleep(1) }",
    "monitor" => "m = Monitor.new; m.synchronize { m.new_cond.wait(1) }",
    "select" => "IO.select([IO.pipe.first], nil, nil, 1)",
    "sleep" => "sleep 1"
  }.freeze

  def test_asking_for_backtraces_ends_no_wait
    trials = WAITS.map { |name, code| "#{name.inspect} => -> { #{code} }" }
    app = app(<<~RUBY)
      from = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      { #{trials.join(', ')} }.fetch(env["QUERY_STRING"]).call
      [200, {}, [(Process.clock_gettime(Process::CLOCK_MONOTONIC) - from >= 0.99).to_s]]
    RUBY
    serve("require 'monitor'\n#{app}") do |worker|
      WAITS.each_key do |name|
        id = worker.start(target: "/?#{name}")
        sleep 0.3
        Process.kill("URG", worker.pid)
        assert_match(/life_test|config\.ru/, worker.take { |frame| frame.kind == :traces }.payload)
        Process.kill("PWR", worker.pid)
        assert_equal "true", worker.response(id)[2], name
      end
    end
  end

  def test_kill_is_for_own_workers_only
    serve(HELLO) do |worker, front|
      front.tell("kill", Process.pid, "TERM")
      front.tell("kill", worker.pid, "KILL")
      assert_equal ["signal", 9], front.ended(worker).first(2)
    end
  end

  def test_the_front_dies
    serve("#{HELLO}\nFirebrick.after_fork { trap('TERM', 'IGNORE') if File.exist?('deaf') }", files: { "sock" => "" },
                                                                                              unlink: "sock") do |worker, front|
      File.write(File.join(front.dir, "deaf"), "")
      deaf = front.fork_worker
      front.control.close
      assert_equal 0, front.wait.exitstatus
      refute_path_exists File.join(front.dir, "sock")
      eventually("the workers are gone") { !alive?(worker.pid) && !alive?(deaf.pid) }
    end
  end

  def test_exit_ends_the_template
    FakeFront.open("at_exit { $stderr.puts 'at_exit' }\n#{HELLO}", workers: 0) do |front|
      front.tell("exit")
      assert_equal 0, front.wait.exitstatus
      assert_equal "at_exit\n", front.log
    end
  end

  def test_apps_that_cannot_be_loaded
    { "raise 'boom'" => /RuntimeError: boom.*\n.*config\.ru:1/, "run (" => /SyntaxError/, "exit 3" => /exit \(3\)/,
      "require 'no_such_thing'" => /LoadError.*no_such_thing/, "1" => /./,
      "Firebrick.before_fork { raise 'hook' }\n#{HELLO}" => /hook/ }.each do |rackup, reason|
      error = assert_raises(FakeFront::Gone, rackup) { FakeFront.open(rackup, workers: 0) { flunk "booted: #{rackup}" } }
      assert_match(reason, error.message)
    end
  end

  def test_hooks
    rackup = <<~RUBY
      Firebrick.before_fork { $order = [:before_fork] }
      Firebrick.after_fork { |index| $order << index }
      Firebrick.on_worker_boot { |index| $order << -index }
      run ->(_) { [200, {}, [$order.inspect]] }
    RUBY
    serve(rackup) do |_, front|
      assert_equal "[:before_fork, 3, -3]", front.fork_worker(3).get[2]
    end
  end

  def test_a_broken_hook_ends_the_worker
    FakeFront.open("Firebrick.after_fork { raise 'no database' }\n#{HELLO}", workers: 0) do |front|
      worker = front.fork_worker(0, ready: false)
      assert_equal ["exit", 1], front.ended(worker).first(2)
      assert_match(/worker 0.*after_fork hook: RuntimeError: no database/, front.log)
    end
  end

  def test_warm_up
    rackup = <<~RUBY
      $seen = []
      run ->(env) { raise "cold" if env["PATH_INFO"] == "/bad"; $seen << env["REQUEST_URI"]; [200, {}, [$seen.inspect]] }
    RUBY
    serve(rackup, warmup: ["/a?b", "/bad", "/c"]) do |worker, front|
      assert_equal '["/a?b", "/c", "/"]', worker.get[2]
      assert_match(/warm-up: RuntimeError: cold/, front.log)
    end
  end

  def test_titles_and_environment
    serve(app('[200, {}, [ENV["RACK_ENV"], " ", File.read("/proc/self/cmdline").delete("\0")]]'), environment: "staging") do |worker, front|
      assert_equal "staging firebrick: worker 0 [test]", worker.get[2].strip
      assert_equal "firebrick: template [test]", File.read("/proc/#{front.pid}/cmdline").delete("\0").strip
    end
  end

  def test_workers_inherit_nothing
    sockets = 'Dir["/proc/self/fd/*"].filter_map { |f| File.readlink(f) rescue nil }.grep(/socket/).length.to_s'
    serve(app("[200, {}, [#{sockets}]]"), links: 2) { |_, front| assert_equal "2", front.fork_worker.get[2] }
  end

  # A file that a request loads is parsed in each worker, under way to a client that has its head already, and stops the worker's other threads.
  def test_requests_load_no_file_of_the_library
    rackup = <<~'RUBY'
      run lambda { |env|
        $before ||= $LOADED_FEATURES.dup
        case env["PATH_INFO"]
        when "/stream" then [200, {}, ->(stream) { stream.close }]
        when "/partial" then [200, { "rack.hijack" => ->(io) { io.close } }, []]
        when "/hijack" then env["rack.hijack"].call.close
        when "/upgrade" then [101, { "upgrade" => "x" }, ->(stream) { stream.close }]
        when "/file" then [200, { "x-sendfile" => __FILE__ }, []]
        when "/accel" then [200, { "x-accel-redirect" => "/x" }, []]
        when "/body" then [200, {}, [env["rack.input"].read, env["rack.input"].size.to_s]]
        when "/error" then raise "on purpose"
        when "/hints" then env["rack.early_hints"]&.call("link" => "x"); [200, { "set-cookie" => "a=b" }, ["x"]]
        when "/new" then [200, {}, [($LOADED_FEATURES - $before).grep(/firebrick/).join("\n")]]
        end
      }
    RUBY
    serve(rackup) do |worker|
      %w[/new /stream /partial /hijack /upgrade /file /accel /body /error /hints].each do |path|
        id = worker.start(target: path, **(path == "/body" ? { method: "POST", body: "x" } : {}))
        worker.take_for(id, path == "/hijack" ? :hijack : :response)
      end
      assert_equal "", worker.get("/new")[2]
    end
  end

  def test_bundler_has_its_say_first
    gemfile = "gem 'rack'\n"
    serve("#{HELLO}\n$stderr.puts defined?(Bundler).inspect, $LOADED_FEATURES.grep(/json|stringio/).length", files: { "Gemfile" => gemfile }) do |worker, front|
      assert_equal "hello", worker.get[2]
      assert_match(/"?constant"?/, front.log)
    end
    error = assert_raises(FakeFront::Gone) do
      FakeFront.open(HELLO, workers: 0, files: { "Gemfile" => "gem 'no_such_gem_at_all'\n" }) { flunk }
    end
    assert_match(/exit|no_such_gem/, error.message)
  end

  def test_a_malformed_frame_ends_the_worker
    serve(HELLO) do |worker, front|
      worker.send_frame([3, 0x01, 0, 0, 1].pack("VCCvV") << "abc")
      assert_equal ["exit", 70], front.ended(worker).first(2)
      assert_match(/malformed frame/, front.log)
    end
  end
end
