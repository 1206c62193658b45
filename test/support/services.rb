# frozen_string_literal: true

# Processes beside the workers. Questions to those of `[services]` and of `Firebrick.service` alike are here, once for
# each kind: a class includes this and has
#
# launch            a server with a service that logs its start, and its end after TERM
# launch_stubborn   one whose service does not stop, and has started a child: starts.log and child.log have their process ids
# launch_with       one whose app has more code, in a worker
# launch_bare       one whose lines have no prefix

require "support/reloading"

module Services
  include Reloading

  def lines(own, name) = File.exist?(own.path(name)) ? File.readlines(own.path(name), chomp: true) : []

  # Returns the process id of the service that was started last, once there have been that many starts.
  def service_pid(own, starts = 1)
    wait_until("#{starts} starts", within: 30) { lines(own, "starts.log").size >= starts }
    wait_until("it to run") { own.stats["services"].any? { |one| one["state"] == "running" } }
    lines(own, "starts.log").last.to_i
  end

  def service(own) = own.stats["services"].fetch(0)

  def status(pid) = File.read("/proc/#{pid}/stat").sub(/.*\)/, "x x").split

  def alive?(pid)
    status(pid)[2] != "Z"
  rescue Errno::ESRCH, Errno::ENOENT
    false
  end

  def assert_runs(own, pid)
    assert wait_until("its lines") { own.stdout.include?("jobs | hello\njobs | from #{pid}\n") }, own.stdout
    assert wait_until("its errors") { own.stderr.include?("jobs | careful\n") }, own.stderr
    assert_equal ["jobs", pid, "running", 0], service(own).values_at("name", "pid", "state", "restarts")
    assert_match(/^firebrick_service_up\{service="jobs"\} 1$/, own.metrics)
    assert_match(/services +jobs running/, own.command_line("stats", own.dir).first)
  end

  def self.included(base)
    base.class_eval do
      it "is asked to stop after the workers, may finish, and is gone with the server" do
        firebrick_only
        own = launch_with(%(Firebrick.before_worker_exit { sleep 0.3; File.write("worker.log", File.exist?("stopped.log").to_s) }))
        pid = service_pid(own)
        own.signal("TERM")
        assert_equal 0, own.wait_exit
        assert_equal ["false"], lines(own, "worker.log"), "the service had not stopped when the worker did"
        assert_equal [pid.to_s], lines(own, "stopped.log")
        refute alive?(pid)
      end

      it "is killed with all that it started when it does not stop in time" do
        firebrick_only
        own = launch_stubborn
        pid = service_pid(own)
        own.signal("TERM")
        assert_equal 0, own.wait_exit
        refute alive?(pid)
        refute alive?(lines(own, "child.log").first.to_i)
      end

      it "ends when the server is killed, and so does what it started" do
        firebrick_only
        own = launch_stubborn(exit_code: :any)
        pid = service_pid(own)
        child = lines(own, "child.log").first.to_i
        own.signal("KILL")
        own.wait_exit
        assert wait_until("the service to end") { !alive?(pid) && !alive?(child) }
      end

      it "ends when its guard is killed, and is started again" do
        firebrick_only
        own = launch
        pid = service_pid(own)
        Process.kill("KILL", status(pid)[3].to_i)
        refute_equal pid, service_pid(own, 2)
        refute alive?(pid)
        assert_logged(/service jobs.*because its guard was/, on: own)
      end

      it "passes its output on as it is without a prefix" do
        firebrick_only
        own = launch_bare
        pid = service_pid(own)
        assert wait_until("its lines") { own.stdout.include?("\nfrom #{pid}\n") }, own.stdout
        refute_includes own.stdout, "jobs |"
      end
    end
  end
end
