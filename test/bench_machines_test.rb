# frozen_string_literal: true

# `firebrick bench --listen` and `--join`: load generators on several machines with one report. In these tests all run on one machine.

require "socket"
require "support/bench_case"
require "support/processes"

class BenchMachinesTest < BenchCase
  in_turn!
  shared_server app: <<~'RUBY', workers: 1, threads: "8:8"
    served = 0
    lock = Mutex.new
    run lambda { |env|
      number = lock.synchronize { env["PATH_INFO"] == "/count" ? served : served += 1 }
      [200, { "content-type" => "text/plain" }, ["#{number}\n"]]
    }
  RUBY

  TOKEN = "0123456789abcdef0123456789abcdef"

  # A started command: its pid, and threads that read its output and wait for its end.
  Started = Struct.new(:pid, :output, :errors, :waiter) do
    def finish(within)
      waiter.join(within) or raise Minitest::Assertion, "process #{pid} did not end within #{within} s"
      [output.value, errors.value, waiter.value.exitstatus]
    end
  end

  def setup
    firebrick_only
    @started = []
    @address = "127.0.0.1:#{TCPServer.open('127.0.0.1', 0) { |free| free.local_address.ip_port }}"
  end

  def teardown
    @started.each { |one| Process.kill("KILL", one.pid) if one.waiter.alive? }
  end

  it "divides the load and has one report" do
    before = get("/count").body.to_i
    load = [server.url, "-c", 7, "-n", 1003]
    main = listen(3, *load, "--format", "json")
    workers = Array.new(3) { join(*load) }
    out, err, code = main.finish(30)
    assert_equal [0, ""], [code, err]
    found = JSON.parse(out)
    assert_equal [1003, 1003, 7], found["outcome"].values_at("sent", "ok", "connections")
    assert_equal [3, 7], found["plan"].values_at("workers", "connections")
    assert_equal before + 1003, get("/count").body.to_i
    workers.each { |worker| assert_equal ["", "", 0], worker.finish(10) }
  end

  it "accepts only workers that know the token and have the same load" do
    load = [server.url, "--rate", "40/s", "-d", "1s"]
    main = listen(2, *load, "--format", "json")
    good = [join(*load)]
    { join(*load, token: TOKEN.reverse) => /refused this worker: its token differs/,
      join(server.url, "--rate", "50/s", "-d", "1s") => /refused this worker: its URLs or flags differ: use the same ones/ }.each do |worker, wanted|
      out, err, code = worker.finish(20)
      assert_equal ["", 1], [out, code]
      assert_match wanted, err
    end
    strangers = ["GET / HTTP/1.1\r\n\r\n", "x" * 200_000, ""].map { |bytes| stranger(bytes) }
    good << join(*load)
    out, err, code = main.finish(30)
    assert_equal [0, "", 40], [code, err, JSON.parse(out).dig("summary", "requests")]
    good.each { |worker| assert_equal 0, worker.finish(10).last }
  ensure
    strangers&.each(&:close)
  end

  it "names a worker that is lost" do
    load = [server.url, "--rate", "40/s", "-d", "3s"]
    main = listen(2, *load, "--format", "json")
    workers = Array.new(2) { join(*load) }
    before = get("/count").body.to_i
    wait_until("requests", within: 20) { get("/count").body.to_i > before + 5 }
    Process.kill("KILL", workers[0].pid)
    out, err, code = main.finish(30)
    assert_equal 1, code
    assert_match(/\Afirebrick bench: incomplete: worker \d of 2 \(127\.0\.0\.1:\d+\) closed its connection\n\z/, err)
    assert_equal 60, JSON.parse(out).dig("summary", "requests"), "those of the other one"
    assert_equal 0, workers[1].finish(10).last
  end

  it "ends while it waits for workers" do
    main = listen(2, server.url)
    worker = join(server.url)
    sleep 0.5
    Process.kill("INT", main.pid)
    _, err, code = main.finish(10)
    assert_equal 1, code
    assert_match(/ended when [01] of 2 workers had joined/, err)
    assert_equal 1, worker.finish(10).last
  end

  it "ends the workers when it is killed" do
    load = [server.url, "-d", "60s", "--think", "5ms"]
    main = listen(2, *load)
    workers = Array.new(2) { join(*load) }
    before = get("/count").body.to_i
    wait_until("requests", within: 20) { get("/count").body.to_i > before + 5 }
    Process.kill("KILL", main.pid)
    workers.each { |worker| assert_equal 1, worker.finish(10).last }
  end

  it "needs a token" do
    _, err, code = spawned("--workers", "2", "--listen", @address, server.url, token: "short").finish(10)
    assert_equal 2, code
    assert_match(/FIREBRICK_BENCH_TOKEN has 5 bytes: expected the same secret on all machines, 16 bytes or more/, err)
  end

  private

  def listen(workers, *load)
    spawned("--workers", workers, "--listen", @address, *load)
  end

  def join(*load, token: TOKEN)
    spawned("--join", @address, *load, token: token)
  end

  def spawned(*args, token: TOKEN)
    output, errors = Array.new(2) { IO.pipe }
    env = Server.ruby_files.merge("FIREBRICK_BENCH_TOKEN" => token)
    pid = Process.spawn(env, Server.binary, "bench", *args.map(&:to_s), in: File::NULL, out: output[1], err: errors[1])
    [output, errors].each { |pipe| pipe[1].close }
    texts = [output, errors].map { |pipe| Thread.new { pipe[0].read } }
    Started.new(pid, *texts, Process.detach(pid)).tap { |one| @started << one }
  end

  # A connection of an unrelated client, which stays open.
  def stranger(bytes)
    host, port = @address.split(":")
    TCPSocket.new(host, port).tap do |socket|
      socket.write(bytes)
    rescue Errno::EPIPE, Errno::ECONNRESET
      nil
    end
  end
end
