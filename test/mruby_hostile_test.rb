# frozen_string_literal: true

# Handlers that leave the Fiber of their request, keep those of others, or allocate all memory in some way: they get 500, no client gets the
# response of another, and the front survives.

require "support/case"

class MrubyHostileTest < Case
  parallel!

  HANDLERS = <<~'RUBY'
    class Strays
      def each
        yield "part"
        Fiber.yield(true)
      end
    end
    $kept = nil
    HOSTILE = {
      "/yield" => lambda { |env| Fiber.yield },
      "/yield-true" => lambda { |env| Fiber.yield(true) },
      "/yield-response" => lambda { |env| Fiber.yield([200, {}, [env["HTTP_X_CLIENT"]]]) },
      "/yield-marker" => lambda { |env| Fiber.yield(Rt::WAITING) },
      "/yield-later" => lambda { |env| sleep 0.01; Fiber.yield(true) },
      "/ensure" => lambda { |env| begin; [200, {}, ["x"]]; ensure; Fiber.yield(true); end },
      "/leave" => lambda { |env| Rt.leave(true) },
      "/transfer" => lambda { |env| Fiber.new { [200, {}, ["x"]] }.transfer },
      "/resume" => lambda { |env| $kept.resume(true) },
      "/resume-raw" => lambda { |env| $kept.__resume__(true) },
      "/true" => lambda { |env| true },
      "/fibers" => lambda { |env| a = []; 60_000.times { |i| a << Fiber.new { i } }; [200, {}, [a.size.to_s]] },
      "/waiting-fibers" => lambda { |env| a = []; while true; f = Fiber.new { Fiber.yield "x" * 50 }; f.resume; a << f; end },
      "/enumerators" => lambda { |env| a = []; while true; e = [1, 2].each; e.next; a << e; end },
      "/hashes" => lambda { |env| h = {}; while true; h["key #{h.size}"] = h.size; end },
      "/arrays" => lambda { |env| a = [1, 2, 3]; while true; a << a.size; end },
      "/list" => lambda { |env| a = nil; while true; a = [a, a]; end },
      "/strings" => lambda { |env| a = []; while true; a << "x" * (a.size % 97); end },
      "/procs" => lambda { |env| make = lambda { |one| lambda { one } }; a = nil; while true; a = make.call(a); end },
      "/exceptions" => lambda { |env| a = []; while true; begin; raise "no #{a.size}"; rescue => e; a << e; end; end },
      "/classes" => lambda { |env| a = []; while true; a << Class.new { def foo; end }; end },
      "/evals" => lambda { |env| a = []; while true; a << eval("lambda { |x| { x => #{a.size} } }"); end },
      "/regexps" => lambda { |env| a = []; while true; a << Regexp.new("a{#{a.size % 50}}b"); end },
      "/shared" => lambda { |env| [200, {}, ["x" * 10_000] * 100_000] },
      "/shared-json" => lambda { |env| [200, {}, [JSON.generate(["x" * 10_000] * 100_000)]] },
      "/shared-hash" => lambda { |env| x = "x" * 10_000; [200, {}, [JSON.generate(Hash[Array.new(10_000) { |i| [i.to_s, x] }])]] },
      "/deep" => lambda { |env| f = lambda { |n| x = [n]; f.call(n + 1) + x.size }; f.call(0) }
    }
    lambda do |env|
      case env["PATH_INFO"]
      when "/stream" then [200, { "content-type" => "text/plain" }, Strays.new]
      when "/session"
        mine = env["HTTP_X_CLIENT"]
        $kept = Fiber.current
        sleep 0.4
        [200, { "set-cookie" => "session=#{mine}" }, [env["HTTP_X_CLIENT"]]]
      else HOSTILE[env["PATH_INFO"]].call(env)
      end
    end
  RUBY

  STRAYS = %w[/yield /yield-true /yield-response /yield-marker /yield-later /ensure /leave /transfer /resume /resume-raw /true].freeze
  GREEDY = %w[/fibers /waiting-fibers /enumerators /hashes /arrays /list /strings /procs /exceptions /classes /evals /regexps /shared /shared-json /shared-hash /deep].freeze

  def setup
    firebrick_only
    _, err, = Server.new(files: { "x.rb" => "lambda { |env| [200, {}, []] }" }).command_line("check", "x.rb", "--mruby")
    skip "built without mruby" if err.include?("without mruby")
  end

  def serve(mruby)
    @own = start(files: { "hostile.rb" => HANDLERS }, settings: "#{mruby}\n[routes]\n\"/\" = \"hostile.rb\"\n", workers: nil, threads: nil)
  end

  def session(client)
    connect(@own, deadline: 120).tap { |one| one.write(request("GET", "/session", { "x-client" => client })) }
  end

  def own_session?(response, client)
    response.status == 200 && response.body == client && response["set-cookie"] == "session=#{client}"
  end

  # nil if the response was cut off.
  def complete_status(connection)
    connection.read_response("GET").status
  rescue StandardError
    nil
  end

  it "answers a stray yield with 500, and nobody gets the response or session of another" do
    serve("[mruby]\ndeadline = \"20s\"")
    STRAYS.each do |path|
      beside = Array.new(8) { |i| ["before #{path} #{i}", session("before #{path} #{i}")] }
      wait_for_tasks(1, on: @own)
      strays = Array.new(8) { connect(@own, deadline: 120).tap { |one| one.write(request("GET", path)) } }
      assert_equal([500], strays.map { |one| one.read_response("GET").status }.uniq, path)
      beside += Array.new(8) { |i| ["after #{path} #{i}", session("after #{path} #{i}")] }
      beside.each { |client, one| assert own_session?(one.read_response("GET"), client), client }
    end
    assert_logged(%r{500 for GET /yield: .*hostile\.rb.*cannot yield here.*FiberError}, on: @own)
  end

  it "cuts off a body that yields, and serves the next" do
    serve("[mruby]\ndeadline = \"20s\"")
    4.times do |i|
      one = connect(@own)
      one.write(request("GET", "/stream"))
      refute_equal 200, complete_status(one)
      assert own_session?(session("client #{i}").read_response("GET"), "client #{i}")
    end
  end

  it "answers 500 to many clients whose handlers take all memory, and serves the others" do
    serve("[mruby]\nheap = \"8MiB\"\nrequest_heap = \"4MiB\"\nstep_time = \"2s\"\nmax_tasks = 5000")
    alive = @own.pid
    GREEDY.each do |path|
      greedy = Array.new(40) { connect(@own, deadline: 120).tap { |one| one.write(request("GET", path)) } }
      statuses = greedy.map { |one| one.read_response("GET").status }
      assert_empty statuses.uniq - [500], path
      wait_until("responses after #{path}", within: 60) { own_session?(session("next").read_response("GET"), "next") }
    end
    assert_equal alive, @own.pid
    Process.kill(0, alive)
  end

  it "survives a crowd of 2,000 in a small heap, of whom most make 60,000 Fibers each" do
    serve("[mruby]\nheap = \"6MiB\"\nstep_time = \"2s\"\nmax_tasks = 5000\ndeadline = \"60s\"")
    alive = @own.pid
    crowd = Array.new(2_000) do |i|
      connect(@own, deadline: 240).tap { |one| one.write(request("GET", (i % 4).zero? ? "/session" : "/fibers", { "x-client" => "client #{i}" })) }
    end
    statuses = crowd.map.with_index do |one, i|
      response = one.read_response("GET")
      assert own_session?(response, "client #{i}"), "client #{i}" if (i % 4).zero? && response.status == 200
      response.status
    end
    assert_empty statuses.uniq - [200, 500]
    assert_includes statuses, 500
    wait_until("responses afterwards", within: 60) { own_session?(session("next").read_response("GET"), "next") }
    assert_equal alive, @own.pid
    Process.kill(0, alive)
  end
end
