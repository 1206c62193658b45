# frozen_string_literal: true

# The order to fork says how many threads and fibers a worker has, so that one template has the workers of all pools.
class PoolsTest < Case
  APP = <<~'RUBY'
    run lambda { |env|
      sleep env["QUERY_STRING"].to_f
      [200, {}, ["#{Fiber.scheduler ? 'fiber' : 'thread'} #{env['rack.multithread']}"]]
    }
  RUBY

  def ready(front, **shape)
    worker = front.fork_worker(ready: false, **shape)
    [worker, worker.take { |frame| frame.kind == :ready }.payload.unpack("VV")]
  end

  def served(front, index, count)
    eventually("#{count} are served") { front.slot(index)[:taken].sum == count }
  end

  def test_workers_of_a_template_differ
    FakeFront.open(APP, threads: [1, 3], workers: 0) do |front|
      threads, seats = ready(front, threads: [1, 3], fibers: 0)
      assert_equal [threads.pid, 3], seats
      fibers, seats = ready(front, threads: [1, 1], fibers: 20)
      assert_equal [fibers.pid, 20], seats
      one, seats = ready(front, threads: [1, 1], fibers: 0)
      assert_equal [one.pid, 1], seats
      assert_equal(["thread true", "fiber true", "thread false"], [threads, fibers, one].map { |worker| worker.get("/")[2] })
    end
  end

  def test_each_worker_serves_as_many_as_it_has_seats
    FakeFront.open(APP, threads: [1, 2], workers: 0) do |front|
      threads = front.fork_worker(fibers: 0)
      fibers = front.fork_worker(threads: [1, 1], fibers: 5)
      ids = { threads => Array.new(2) { threads.start(target: "/?1") }, fibers => Array.new(5) { fibers.start(target: "/?1") } }
      served(front, 0, 2)
      served(front, 1, 5)
      assert_equal [2, 0], [front.slot(0)[:serving].count(&:positive?), front.slot(1)[:serving].count(&:positive?)], "fibers wait"
      assert_equal [0, 5], [front.slot(0)[:now], front.slot(1)[:now]]
      answers = ids.flat_map { |worker, started| started.map { |id| worker.response(id)[2] } }
      assert_equal (["thread true"] * 2) + (["fiber true"] * 5), answers
    end
  end

  # The process of a warm worker has threads, and perhaps loops of fibers, that its successors use again.
  def test_a_template_of_a_warm_worker_has_workers_of_each_kind
    shapes = { "thread true" => { threads: [2, 2], fibers: 0 }, "fiber true" => { threads: [1, 1], fibers: 5 } }
    shapes.each_value do |first|
      FakeFront.open(APP, threads: [1, 2], workers: 0) do |front|
        worker = front.fork_worker(**first)
        2.times { worker.get("/") }
        control = worker.promote
        worker.send_frame(Wire.frame(:drain))
        front.ended(worker)
        front.follow(control)
        2.times do |round|
          shapes.each { |kind, shape| assert_equal kind, front.fork_worker((2 * round) + (kind.start_with?("fiber") ? 2 : 1), **shape).get("/")[2] }
        end
      end
    end
  end
end
