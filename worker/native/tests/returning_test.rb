# frozen_string_literal: true

# Requests that were sent in advance are returned when the one before them is slow.
class ReturningTest < Case
  APP = <<~'RUBY'
    File.write("seen.log", env["PATH_INFO"] + "\n", mode: "a")
    sleep(env["QUERY_STRING"].to_f)
    [200, {}, [env["PATH_INFO"]]]
  RUBY

  def setup
    threads_only "a fiber that waits holds no others up"
  end

  def serve(*, **)
    super { |worker, front| yield worker.tap { worker.resends = false }, front }
  end

  def seen(front)
    File.readlines(File.join(front.dir, "seen.log"), chomp: true)
  end

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

  # Sends a batch: a fast request, a slow one, and others behind it.
  def batch(worker, slow: 1)
    worker.send_frame((0..5).map { |n| Wire.request(100 + n, target: "/#{n}?#{n == 1 ? slow : 0}") }.join)
  end

  def test_a_slow_request_sends_finished_responses_and_returns_the_others
    serve(app(APP)) do |worker, front|
      20.times { worker.get }
      started = now
      batch(worker)
      assert_equal "/0", worker.response(100)[2]
      returned = worker.take { |frame| frame.kind == :returned }
      assert_operator now - started, :<, 0.8
      assert_equal 22, returned.payload.unpack1("Q<"), "twenty, the fast one and the slow one have been taken up"
      worker.send_frame(Wire.frame(:resume) + Wire.request(200, target: "/again"))
      assert_equal "/1", worker.response(101)[2]
      assert_equal "/again", worker.response(200)[2]
      refute_nil(worker.take { |frame| frame.kind == :resumed })
      assert_equal %w[/0 /1 /again], seen(front).last(3)
      assert_equal [27], front.slot(0)[:taken], "with those that were discarded"
    end
  end

  def test_requests_that_have_not_been_read_are_returned_too
    serve(app(APP)) do |worker, front|
      slow = worker.start(target: "/slow?1")
      eventually("it has been taken up") { front.slot(0)[:taken] == [1] }
      late = worker.start(target: "/late")
      assert_equal(1, worker.take { |frame| frame.kind == :returned }.payload.unpack1("Q<"))
      worker.start(target: "/later")
      worker.send_frame(Wire.frame(:resume))
      last = worker.start(target: "/last")
      assert_equal(%w[/slow /last], [slow, last].map { |id| worker.response(id)[2] })
      assert_equal %w[/slow /last], seen(front)
      assert_empty(worker.frames.select { |frame| frame.id == late })
    end
  end

  def test_a_link_without_waiting_requests_is_left_alone
    serve(app(APP), links: 2) do |worker|
      slow = worker.start(target: "/slow?0.6", link: 1)
      sleep 0.2
      worker.start(target: "/other", link: 1)
      assert_equal(1, worker.take { |frame| frame.kind == :returned }.link)
      worker.send_frame(Wire.frame(:resume), link: 1)
      worker.response(slow)
      assert_equal(1, worker.take { |frame| frame.kind == :resumed }.link)
      assert_equal "/", worker.get(link: 0)[2]
      assert_equal "/", worker.get(link: 1)[2]
      assert_empty worker.frames
    end
  end

  def test_bodies_of_returned_requests_are_closed
    descriptors = APP.sub("[200", 'n = Dir["/proc/self/fd/*"].length; [200').sub('[env["PATH_INFO"]]]', "[n.to_s]]")
    serve(app(descriptors)) do |worker, front|
      before = worker.get[2]
      Tempfile.create do |file|
        file.write("x" * 1000)
        file.flush
        slow = worker.start(target: "/slow?0.5")
        4.times { worker.start(target: "/upload", method: "POST", fd_length: 1000, file: file) }
        worker.take { |frame| frame.kind == :returned }
        worker.send_frame(Wire.frame(:resume))
        worker.response(slow)
      end
      assert_equal before, worker.get[2]
      refute_includes seen(front), "/upload"
    end
  end

  def test_a_worker_that_drains_discards_what_it_has_returned
    serve(app(APP)) do |worker, front|
      batch(worker, slow: 0.5)
      worker.take { |frame| frame.kind == :returned }
      worker.send_frame(Wire.frame(:resume) + Wire.frame(:drain))
      assert_equal "/1", worker.response(101)[2]
      assert_equal ["exit", 0], front.ended(worker).first(2)
      assert_equal %w[/0 /1], seen(front)
    end
  end
end
