# frozen_string_literal: true

# `test/run` leaves nothing behind, interrupted or not.

require "support/case"

class InterruptedRunTest < Case
  parallel!

  # Like test/run, with two suites of its own: one test runs alone, one would run beside it in a thread.
  RUN = <<~'RUBY'
    require "support/case"
    class Endless < Case
      parallel! if ENV["BESIDE"]
      it "never ends" do
        own = start(app: 'run ->(_env) { [200, {}, [Process.pid.to_s]] }', settings: { services: { one: "sleep 1000" } })
        wait_until("a service") { own.stats["services"].any? { |one| one["state"] == "running" } }
        # A process that is in the server's folder, but no child of the server any more.
        Process.wait(Process.spawn("sh", "-c", "setsid sleep 1000 & exit 0", chdir: own.dir))
        $stdout.puts "#{own.base} #{own.pid}"
        $stdout.flush
        sleep
      end
    end
    Interruption.install
    Minitest.run([])
  RUBY

  def setup
    firebrick_only
  end

  { "INT" => [nil], "TERM" => [nil, "1"] }.flat_map { |signal, ways| ways.map { |beside| [signal, beside] } }.each do |signal, beside|
    it "ends its servers after #{signal}#{' when tests run side by side' if beside}" do
      command = [{ "BESIDE" => beside }, RbConfig.ruby, "-I", __dir__, "-e", RUN, { err: File::NULL }]
      run = IO.popen(command)
      folder, pid = wait_until("the server", within: 60) { run.gets&.then { |line| line.split if line.start_with?("/") } }
      before = Processes.in_directory(folder) + Processes.tree(pid.to_i)
      assert_operator before.size, :>=, 4, "front, template, worker, service"
      Process.kill(signal, run.pid)
      _, status = Process.wait2(run.pid)
      assert_equal 128 + Signal.list.fetch(signal), status.exitstatus
      left = before.select { |one| Processes.alive?(one) }
      assert_empty(left.map { |one| Processes.command(one.pid) })
      refute_path_exists folder
    ensure
      run&.close
    end
  end

  LEAVING = <<~'RUBY'
    require "support/left_behind"
    LeftBehind.mark
    Process.wait(Process.spawn("sh", "-c", "setsid sh -c 'while :; do sleep 1; done' & exit 0", pgroup: true))
    LeftBehind.end_all
  RUBY

  it "names and ends processes that its tests have left behind" do
    out = IO.popen([RbConfig.ruby, "-I", __dir__, "-e", LEAVING], &:read)
    left = out.scan(/^Left behind by a test, and ended: process (\d+), (.*)$/)
    assert_equal ["sh -c while :; do sleep 1; done"], left.map(&:last).grep(/while/), out
    wait_until("its end") { left.none? { |pid, _| Processes.alive?(Integer(pid)) } }
  end
end
