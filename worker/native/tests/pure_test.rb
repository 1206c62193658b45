# frozen_string_literal: true

require_relative "../../lib/firebrick/wire"
require_relative "../../lib/firebrick/pure/pace"

# Tests specific to the worker in plain Ruby.
class PureTest < Case
  def test_it_knows_the_names_of_the_wire
    assert_equal Wire::NAMES, Firebrick::Wire::NAMES
  end

  def test_the_library_is_the_one_under_test
    serve(app("[200, {}, [Firebrick.const_defined?(:Pure).to_s]]")) { |worker| assert_equal Pure.run?.to_s, worker.get[2] }
  end

  def test_large_strings_come_in_pieces_within_the_window
    skip "the native worker offers them" unless Pure.run?

    serve(app('[200, {}, ["x" * 1_500_000, "yz"]]')) do |worker|
      id = worker.start
      assert_equal ["1500002"], header(worker.take_for(id, :response).head[1], "content-length")
      pieces = []
      pieces << worker.take_for(id, :body).payload until pieces.sum(&:bytesize) == 1 << 20
      assert worker.quiet?(0.2), "bytes beyond the window"
      worker.send_frame(Wire.frame(:window, id, [1 << 20].pack("V")))
      pieces << worker.take_for(id, :body).payload until pieces.sum(&:bytesize) == 1_500_002
      assert_equal "#{'x' * 1_500_000}yz", pieces.join
      assert_operator pieces.map(&:bytesize).max, :<=, 64 << 10
      refute_predicate worker.take_for(id, :end), :end?
    end
  end

  def test_a_worker_whose_threads_were_killed_drains
    serve(app("Thread.exit"), threads: [2, 2]) do |worker, front|
      3.times { assert_equal 500, worker.get.first }
      worker.drain
      assert_equal ["exit", 0], front.ended(worker).first(2)
    end
  end

  def test_nothing_follows_a_body_that_ended_soon
    pieces = 'e = Enumerator.new { |y| y << "a"; y << "b" }; [200, { "content-length" => "2" }, e]'
    serve(app(pieces)) do |worker|
      assert_equal "ab", worker.get[2]
      assert worker.quiet?(0.2), "frames behind the end"
    end
  end

  def test_a_coded_body_has_no_length
    body = "#{200_000.to_s(16)}\\r\\n\" + \"x\" * 200_000 + \"\\r\\n0\\r\\n\\r\\n"
    serve(app(%([200, { "transfer-encoding" => "chunked" }, ["#{body}"]]))) do |worker|
      _, fields, bytes, failed = worker.get
      assert_empty header(fields, "content-length")
      assert_equal ["30d40\r\n#{'x' * 200_000}\r\n0\r\n\r\n", false], [bytes, failed]
    end
  end

  def test_threads_are_called_for_each_request_until_requests_are_quick
    pace = Firebrick::Pure::Pace.new(2)
    assert pace.call?(5)
    refute_predicate pace, :quick?
    100.times { pace.took(100) }
    assert_predicate pace, :quick?
    assert pace.call?(1), "a processor is free"
    refute pace.call?(2)
  end

  def test_one_slow_request_among_many_changes_less_than_one_that_holds_others_up
    pace = Firebrick::Pure::Pace.new(1)
    100.times { pace.took(10) }
    pace.took(5_000)
    assert_predicate pace, :quick?
    pace.slow_down
    refute_predicate pace, :quick?
    assert pace.call?(7)
  end

  def test_threads_are_called_when_requests_wait_for_something_else_than_a_processor
    pace = Firebrick::Pure::Pace.new(1)
    100.times { pace.took(100) }
    pace.watch
    refute pace.call?(1)
    sleep 0.1
    pace.watch
    assert pace.call?(1), "this process has hardly computed meanwhile"
  end
end
