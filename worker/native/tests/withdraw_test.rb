# frozen_string_literal: true

# Requests that the front withdraws from a worker that does not run.
class WithdrawTest < Case
  APP = <<~'RUBY'
    $stderr.puts env["PATH_INFO"]
    [200, {}, [env["PATH_INFO"]]]
  RUBY

  # Stops the worker while the block sends it requests.
  def while_stopped(worker)
    Process.kill("STOP", worker.pid)
    # The signal takes effect when each thread is about to run.
    eventually("it is stopped") { Dir["/proc/#{worker.pid}/task/*/stat"].all? { |file| File.read(file).match?(/\) T/) } }
    yield
  ensure
    Process.kill("CONT", worker.pid)
  end

  def test_withdrawn_requests_are_not_run
    [[1, 1], [3, 3]].each do |threads|
      serve(app(APP), threads: threads) do |worker, front|
        worker.resends = false
        worker.get("/before")
        # By then the watchdog, which sends overdue frames, sleeps.
        sleep 0.1
        while_stopped(worker) do
          3.times { worker.start(target: "/withdrawn") }
          front.withdraw(0, 4)
        end
        returned = worker.take { |frame| frame.kind == :returned }
        assert_equal 1, returned.payload.unpack1("Q<"), "all but the first"
        worker.send_frame(Wire.frame(:resume))
        refute_nil(worker.take { |frame| frame.kind == :resumed })
        assert_equal "/after", worker.get("/after")[2]
        assert_equal %w[/before /after], front.log.lines(chomp: true)
        assert_equal [5], front.slot(0)[:taken]
        # A request is finished when the steps after its response are done.
        eventually("both are finished") { front.slot(0)[:requests] == 2 }
      end
    end
  end

  def test_only_the_link_that_is_named_loses_its_requests
    serve(app(APP), links: 2) do |worker, front|
      worker.resends = false
      kept = nil
      while_stopped(worker) do
        worker.start(target: "/withdrawn", link: 0)
        kept = worker.start(target: "/kept", link: 1)
        front.withdraw(0, 1, link: 0)
      end
      assert_equal "/kept", worker.response(kept)[2]
      assert_equal [0, 0], [worker.take { |frame| frame.kind == :returned }].map { |frame| [frame.link, frame.payload.unpack1("Q<")] }.first
      assert_equal %w[/kept], front.log.lines(chomp: true)
    end
  end
end
