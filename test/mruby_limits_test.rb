# frozen_string_literal: true

# The limits of an mruby handler, and what happens to other requests when one exceeds them: memory, depth, time, task slots.

require "support/case"

class MrubyLimitsTest < Case
  parallel!

  GREEDY = <<~'RUBY'
    HOARD = {}
    GREEDY = {
      "/hello" => lambda { |env| [200, {}, ["Hello"]] },
      "/spin" => lambda { |env| while true; end },
      "/count" => lambda { |env| i = 0; while true; i += 1; i = 0 if i > 9; end },
      "/loop" => lambda { |env| loop {} },
      "/rescues" => lambda { |env| while true; begin; "x" * 100; rescue Exception; end; end },
      "/string" => lambda { |env| s = "x"; while true; s += s; end },
      "/array" => lambda { |env| a = []; while true; a << "x" * 1_000; end },
      "/deep" => lambda { |env| def deep(n); deep(n + 1) + 1; end; deep(0) },
      "/blocks" => lambda { |env| f = lambda { |g| g.call(g) }; f.call(f) },
      "/inspect" => lambda { |env| a = []; a << a; a.inspect; [200, {}, ["Hello"]] },
      "/fibers" => lambda { |env| nest = lambda { |n| Fiber.new { nest.call(n + 1) }.resume }; nest.call(0) },
      "/symbols" => lambda { |env| i = 0; while true; "symbol-#{i += 1}-#{"x" * 500}".to_sym; end },
      "/slowly" => lambda { |env| a = []; while true; a << "x" * 500_000; sleep 0.001; end },
      "/streams" => lambda { |env| 100.times { "x" * 500_000; sleep 0.001 }; [200, {}, ["Hello"]] },
      "/never" => lambda { |env| begin; sleep; ensure; Rt.call(Rt::LOG, "ensured"); end },
      "/clings" => lambda { |env| while true; begin; sleep; rescue Exception; end; end },
      "/long" => lambda { |env| sleep 2.7; [200, {}, ["waited"]] },
      "/waits" => lambda { |env| sleep 0.5; [200, {}, ["waited"]] }
    }
    lambda { |env| (GREEDY[env["PATH_INFO"]] || lambda { |_| [404, {}, []] }).call(env) }
  RUBY

  LIMITS = <<~TOML
    [mruby]
    heap = "64MiB"
    request_heap = "8MiB"
    step_time = "200ms"
    deadline = "3s"
    max_tasks = 20
    [routes]
    "/" = "greedy.rb"
  TOML

  def setup
    firebrick_only
    _, err, = Server.new(files: { "x.rb" => "lambda { |env| [200, {}, []] }" }).command_line("check", "x.rb", "--mruby")
    skip "built without mruby" if err.include?("without mruby")
    @own = start(files: { "greedy.rb" => GREEDY }, settings: LIMITS, workers: nil, threads: nil)
  end

  # The VM may have been replaced: then the first requests are refused. Each front thread has its own task slots, and a client that
  # is gone may occupy one for a second, because it may only have closed its sending side.
  def lives_on(after)
    wait_until("responses after #{after}", within: 10) { Array.new(8) { get("/hello", to: @own).status }.uniq == [200] }
    assert_equal "Hello", get("/hello", to: @own).body, "after #{after}"
  end

  it "stops an endless computation, and keeps serving" do
    %w[/spin /count /loop /rescues].each do |path|
      assert_equal 500, get(path, to: @own).status, path
      assert_logged(/500 for GET #{path}: .*greedy\.rb.*mruby\.step_time/, on: @own)
      lives_on(path)
    end
  end

  it "responds at once to requests that waited in a replaced VM, and to new ones" do
    waiting = Array.new(3) { connect(@own).tap { |one| one.write(request("GET", "/long")) } }
    wait_for_tasks(3, on: @own)
    assert_equal 500, get("/spin", to: @own).status
    replaced_at = now
    late = get("/hello", to: @own)
    responses = waiting.map { |one| one.read_response("GET") }
    assert_equal [200, "Hello"], [late.status, late.body]
    # With the debug hook no request is affected; without it those of the same thread get an early response.
    assert_empty responses.map(&:status).uniq - [200, 500]
    lost = responses.count { |response| response.status == 500 }
    assert_operator now - replaced_at, :<, 2, "they got a response only after their wait" if lost == responses.size
    assert_equal lost, @own.stderr.scan("in which this one waited").size
  end

  it "stops handlers that take too much memory or depth, and keeps serving" do
    { "/string" => "NoMemoryError", "/array" => "NoMemoryError", "/slowly" => "NoMemoryError",
      "/symbols" => /NoMemoryError|step_time/, "/deep" => "SystemStackError", "/blocks" => "SystemStackError",
      "/fibers" => /SystemStackError|FiberError|NoMemoryError/ }.each do |path, reason|
      assert_equal 500, get(path, to: @own).status, path
      assert_logged reason, on: @own
      lives_on(path)
    end
  end

  it "does not charge a request for garbage" do
    assert_equal "Hello", get("/streams", to: @own).body
  end

  it "survives a value that contains itself" do
    assert_equal "Hello", get("/inspect", to: @own).body
  end

  it "runs the ensure of a handler that waits too long, and stops one that continues to wait" do
    waiting = %w[/never /clings].map { |path| connect(@own).tap { |one| one.write(request("GET", path)) } }
    assert_equal([504, 504], waiting.map { |one| one.read_response("GET").status })
    assert_logged "ensured", on: @own
    lives_on("both")
  end

  it "accepts a limited number of tasks and refuses the others" do
    waiting = Array.new(20 * 4) { connect(@own).tap { |one| one.write(request("GET", "/waits")) } }
    responses = waiting.map { |one| one.read_response("GET") }
    assert_equal [200, 503], responses.map(&:status).uniq.sort
    refused = responses.find { |response| response.status == 503 }
    assert refused["retry-after"], "no retry-after"
    assert_logged "mruby.max_tasks", on: @own
  end

  it "survives clients that disappear at any point" do
    60.times do |i|
      one = connect(@own)
      one.write(request("GET", %w[/waits /never /streams][i % 3]))
      sleep 0.003 * (i % 7)
      one.close
    end
    lives_on("those who left")
  end
end
