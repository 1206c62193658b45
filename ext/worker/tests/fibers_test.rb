# frozen_string_literal: true

# Requests on fibers: what waits does not stop the others.
class FibersTest < Case
  def fibers(rackup, count = 50, **options, &)
    serve(rackup, fibers: count, **options, &)
  end

  # Each starts within the time of one.
  def assert_together(worker, count, seconds, **request)
    began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    ids = Array.new(count) { worker.start(**request) }
    bodies = ids.map { |id| worker.response(id, timeout: 30)[2] }
    took = Process.clock_gettime(Process::CLOCK_MONOTONIC) - began
    assert_operator took, :<, seconds * count / 2.0, "they have waited one after another"
    bodies
  end

  def test_sleepers
    fibers(app("sleep 0.2; [200, {}, [env['PATH_INFO']]]")) do |worker|
      assert_equal ["/a"] * 50, assert_together(worker, 50, 0.2, target: "/a")
    end
  end

  def test_more_requests_than_fibers
    fibers(app("sleep 0.05; [200, {}, ['x']]"), 3) do |worker|
      ids = Array.new(10) { worker.start }
      ids.each { |id| assert_equal 200, worker.response(id)[0] }
    end
  end
end
