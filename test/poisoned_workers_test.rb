# frozen_string_literal: true

# Requests that repeatedly kill their worker: other requests are not affected.

require "support/case"

POISON_APP = <<~'RUBY'
  text = { "content-type" => "text/plain" }
  run lambda { |env|
    case env["PATH_INFO"]
    when "/poison" then Process.kill(:KILL, Process.pid); sleep
    else [200, text, [Process.pid.to_s]]
    end
  }
RUBY

class PoisonedWorkersTest < Case
  parallel!

  [1, 2].each do |workers|
    it "serves others while a request kills its worker again and again (#{workers} workers)" do
      firebrick_only
      own = start(workers: workers, threads: "1:1", app: POISON_APP)
      poisoned = true
      poison = Thread.new do
        count = 0
        while poisoned
          get("/poison", to: own)
          count += 1
          sleep 0.5
        end
        count
      end
      statuses = Hash.new(0)
      slowest = Array.new(60) do
        sleep 0.1
        started = now
        statuses[get("/", to: own).status] += 1
        now - started
      end.max
      poisoned = false
      assert_operator poison.value, :>=, 6, "as many deaths as were asked for"
      assert_operator slowest, :<, 5, "nobody waits for a time-out"
      # A response that waits to be sent together with others may be lost if it is in the same batch as the poison.
      assert_operator statuses[200], :>=, workers == 1 ? 50 : 59, statuses.inspect
    end
  end

  it "does not fork as fast as it can when workers exit by themselves right after they are ready" do
    firebrick_only
    own = start(workers: 1, threads: "1:1", app: <<~'RUBY', exit_code: :any)
      run ->(_) { [200, {}, ["fine"]] }
      Firebrick.after_fork do
        File.write("forks.log", "x", mode: "a")
        Thread.new { sleep 0.05; exit!(1) } if File.exist?("go.log")
      end
    RUBY
    File.write(own.path("go.log"), "")
    Process.kill("KILL", Processes.tree(own.pid).last.pid)
    sleep 6
    assert_operator File.size(own.path("forks.log")), :<, 25
  end
end
