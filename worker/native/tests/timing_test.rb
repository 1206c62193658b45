# frozen_string_literal: true

# The times that a worker reports, and the places of its threads.
class TimingTest < Case
  BURN = "BURN = ->(s) { t = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) + s; " \
         "nil until Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) >= t }"
  APP = <<~RUBY.freeze
    #{BURN}
    run lambda { |env|
      case env["PATH_INFO"]
      when "/mixed" then sleep 0.05; BURN[0.02]
      when "/burn" then BURN[0.2]
      when "/stream"
        sleep 0.02
        next [200, {}, Enumerator.new { |y| y << "a"; BURN[0.02]; y << "b" }]
      when "/nap" then sleep 1.5
      end
      [200, {}, ["ok"]]
    }
  RUBY

  # Whether the worker measures a request that follows a slow one.
  def measures_slow? = !Pure.run? && ENV.fetch("TEST_FIBERS", "0") == "0"

  def test_unmeasured_requests_tell_only_how_long_they_took
    serve(APP) do |worker|
      took, *parts = worker.take_for(worker.start(target: "/mixed"), :response).times
      assert_operator took, :>=, 70_000
      assert_equal [nil, nil], parts
    end
  end

  def test_a_measured_request_tells_what_was_work
    serve(APP) do |worker|
      took, cpu, gvl = worker.take_for(worker.start(target: "/mixed", measure: true), :response).times
      assert_operator took, :>=, 70_000
      assert_includes 20_000..(took - 50_000), cpu
      assert_equal knows_gvl?, !gvl.nil?
      assert_operator gvl, :<=, took - cpu if gvl
    end
  end

  def test_measuring_ends_with_the_request_unless_that_was_slow
    serve(APP) do |worker|
      worker.get("/mixed", measure: true)
      _, cpu, = worker.take_for(worker.start, :response).times
      assert_equal measures_slow?, !cpu.nil?
      assert_equal [nil, nil], worker.take_for(worker.start, :response).times.drop(1)
    end
  end

  def test_a_measured_request_tells_what_it_has_used
    app = "run ->(env) { env['PATH_INFO'] == '/many' ? 10_000.times { Object.new } : nil; [200, {}, []] }"
    serve(app) do |worker|
      many, few = %w[/many /few].map { |path| worker.start(target: path, measure: true).tap { |id| worker.take_for(id, :response) } }
      gc, allocations, queries, = worker.used[many]
      # Of the plain-Ruby worker nothing is known.
      next assert_nil(gc) if Pure.run?

      assert_includes 10_000..20_000, allocations
      assert_operator worker.used[few][1], :<, 5_000
      assert_nil queries
      assert_nil worker.used[worker.start.tap { |id| worker.take_for(id, :response) }]
    end
  end

  REPEATING = <<~'RUBY'
    queries = { "values" => ->(n) { "select * from t1 where a = #{n} and b = 'it''s #{n}' and c > -#{n}.5" },
                "names" => ->(n) { "select a#{n} from t" }, "few" => ->(n) { "select #{n}" if n < 9 },
                "words" => ->(n) { "select '#{"x" * n}'" }, "long" => ->(n) { "select #{"a" * 2_000}, #{n}#{"b" * n}" },
                "binary" => ->(n) { "\xff\xfe'\x00 #{n}".b }, "open" => ->(n) { "select 'no end #{n}" } }
    run lambda { |env|
      12.times do |n|
        sql = queries.fetch(env["PATH_INFO"].delete("/")).call(n)
        Firebrick::Native::Queries.start(nil, nil, nil)
        Firebrick::Native::Queries.finish(nil, nil, n.odd? ? sql : { sql: sql }) if sql
      end
      [200, {}, []]
    }
  RUBY

  # How often a query counts as the same one.
  def test_a_request_tells_which_query_it_repeats
    return if Pure.run?

    serve(REPEATING) do |worker|
      { "values" => 12, "names" => 0, "few" => 0, "words" => 12, "long" => 12, "binary" => 12, "open" => 12 }.each do |path, count|
        2.times do
          id = worker.start(target: "/#{path}")
          worker.take_for(id, :response)
          assert_equal count, worker.used[id].to_a[4] || 0, path
        end
      end
    end
  end

  def test_a_route_is_named_once_on_a_link
    app = "run ->(env) { env['firebrick.route'] = env['QUERY_STRING']; [200, {}, env['PATH_INFO'] == '/each' ? Enumerator.new { |y| y << 'a' << 'b' } : []] }"
    serve(app) do |worker|
      name = lambda do |target|
        frame = worker.take_for(worker.start(target: target), :response)
        worker.route(frame)
      end
      assert_equal %w[one two one], %w[/?one /?two /?one].map(&name)
      assert_nil name.call("/?")
      id = worker.start(target: "/each?three")
      response = worker.take_for(id, :response)
      assert_equal "three", worker.route(response)
      assert_equal "three", worker.route(worker.take_for(id, :end)) unless response.end?
    end
  end

  # Apps and middleware write into the env, too.
  def test_unexpected_values_in_the_env_name_no_route
    app = <<~'RUBY'
      module ActionDispatch; end
      module Sinatra; class Base; end; end
      module Grape; class API; end; end
      module Hanami; class Action; end; end
      VALUES = [nil, 1, :name, "", Object.new, [], {}, { route_info: 1, controller: 2, action: 3 }, { action: "show" }, BasicObject.new,
                Class.new.new].freeze
      KEYS = %w[firebrick.route grape.routing_args sinatra.route hanami.action_instance action_dispatch.request.path_parameters
                action_dispatch.route_uri_pattern].freeze
      run lambda { |env|
        key, value = env["QUERY_STRING"].split("-").map { |number| Integer(number) }
        env[KEYS[key]] = VALUES[value]
        [200, {}, ["ok"]]
      }
    RUBY
    serve(app) do |worker|
      6.times.to_a.product(11.times.to_a) do |key, value|
        response = worker.take_for(worker.start(target: "/?#{key}-#{value}"), :response)
        assert_equal "ok", response.payload.byteslice(-2..), "value #{value} for key #{key}"
      end
    end
  end

  def test_a_stream_tells_times_so_far_and_in_the_end
    serve(APP) do |worker|
      id = worker.start(target: "/stream", measure: true)
      head = worker.take_for(id, :response).times
      all = worker.take_for(id, :end).times
      assert_operator head[0], :>=, 20_000
      assert_operator all[0], :>=, head[0] + 20_000
      assert_operator all[1], :>=, head[1] + 20_000
    end
  end

  def test_threads_in_each_others_way_wait_for_the_gvl
    threads_only "a thread waits for all of its fibers"
    skip "Ruby #{RUBY_VERSION} does not tell" unless knows_gvl?

    serve(APP, threads: [4, 4]) do |worker|
      times = Array.new(4) { worker.start(target: "/burn", measure: true) }.map { |id| worker.take_for(id, :response).times }
      times.each do |took, cpu, gvl|
        assert_operator cpu, :>=, 200_000
        assert_operator cpu + gvl, :<=, took + 1_000
      end
      # Four threads share one lock: the last to finish has waited while the others worked.
      assert_operator times.map(&:last).max, :>=, 300_000
    end
  end

  def test_threads_that_serve_tell_where_they_are
    threads_only "it looks at the scoreboard, which does not show what waits"
    serve(APP, threads: [3, 3]) do |worker, front|
      ids = Array.new(2) { worker.start(target: "/nap") }
      eventually("two requests are served") { front.slot(0)[:serving].count(&:positive?) == 2 }
      Process.kill("URG", worker.pid)
      traces = worker.take { |frame| frame.kind == :traces }.traces
      assert_equal ids, traces.map { |_, id, _| id }.sort
      traces.each do |_, _, lines|
        assert_match(/\Aconfig\.ru:9:in .*sleep/, lines.first)
        refute_match(%r{worker/lib/firebrick}, lines.join("\n"))
      end
      ids.each { |id| assert_equal 200, worker.response(id).first }
    end
  end

  def test_an_idle_worker_has_nothing_to_tell
    serve(APP) do |worker|
      worker.get
      Process.kill("URG", worker.pid)
      assert_empty worker.take { |frame| frame.kind == :traces }.traces
      assert_equal 200, worker.get.first
    end
  end

  private

  # With fibers the time is not known: a thread waits for all of its requests.
  def knows_gvl?
    ENV.fetch("TEST_FIBERS", "0") == "0" && Gem::Version.new(RUBY_VERSION) >= Gem::Version.new("3.2")
  end
end
