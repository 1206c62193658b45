# frozen_string_literal: true

# Fibers beside threads: the second half of the links belongs to the fibers.
class FiberPathsTest < Case
  APP = <<~'RUBY'
    run lambda { |env|
      sleep if env["PATH_INFO"] == "/forever"
      Thread.current.kill if env["PATH_INFO"] == "/kill"
      if env["PATH_INFO"] == "/compute"
        n = 0; n += 1 until File.exist?("free")
      end
      sleep env["QUERY_STRING"].to_f
      [200, {}, [Fiber.scheduler ? "fiber" : "thread"]]
    }
  RUBY

  def both(fibers: 5, threads: [1, 2], links: 2, **options, &block)
    serve(APP, fibers: fibers, fiber_paths: 1, threads: threads, links: links, **options, &block)
  end

  def test_ready_tells_both_kinds_of_seats
    FakeFront.open(APP, fibers: 20, fiber_paths: 1, threads: [1, 3], links: 2, workers: 0) do |front|
      worker = front.fork_worker(ready: false)
      assert_equal [worker.pid, 3, 20], worker.take { |frame| frame.kind == :ready }.payload.unpack("Vvv")
    end
  end

  def test_the_link_decides
    both(links: 4) do |worker|
      assert_equal(%w[thread thread fiber fiber], Array.new(4) { |link| worker.get("/", link: link)[2] })
    end
  end

  def test_each_half_serves_as_many_as_it_has_seats
    both do |worker, front|
      ids = Array.new(5) { worker.start(target: "/?1", link: 1) } + Array.new(2) { worker.start(target: "/?1", link: 0) }
      eventually("all are served") { front.slot(0).values_at(:now, :taken) == [5, [2, 5]] }
      assert_equal 2, front.slot(0)[:serving].count(&:positive?), "the fibers wait"
      assert_equal(%w[fiber fiber fiber fiber fiber thread thread], ids.map { |id| worker.response(id)[2] })
      assert_equal [7, 0], front.slot(0).values_at(:requests, :now)
    end
  end

  # Thread 2 of the slot has the fibers; link 1 is their first.
  def test_the_scoreboard_names_the_link_of_a_fiber_that_computes
    both do |worker, front|
      id = worker.start(target: "/compute", link: 1)
      eventually("it to run") { front.slot(0)[:serving][2].anybits?(1 << 63) }
      assert_equal [1, id], [(front.slot(0)[:serving][2] >> 32) & 0x7fff_ffff, front.slot(0)[:serving][2] & 0xffff_ffff]
      File.write(File.join(front.dir, "free"), "")
      assert_equal "fiber", worker.response(id)[2]
    end
  end

  def test_drain_waits_for_both_halves_in_any_order
    [%w[/?0.6 /?0.2], %w[/?0.2 /?0.6]].each do |targets|
      both do |worker, front|
        ids = targets.each_with_index.map { |target, link| worker.start(target: target, link: link) }
        eventually("both are served") { front.slot(0)[:taken] == [1, 1] }
        2.times { |link| worker.send_frame(Wire.frame(:drain), link: link) }
        assert_equal(%w[thread fiber], ids.map { |id| worker.response(id)[2] })
        assert_equal ["exit", 0], front.ended(worker).first(2)
      end
    end
  end

  def test_an_idle_worker_drains
    both do |worker, front|
      2.times { |link| worker.send_frame(Wire.frame(:drain), link: link) }
      assert_equal ["exit", 0], front.ended(worker).first(2)
    end
  end

  def test_the_end_of_a_link_of_fibers_ends_the_worker
    both do |worker, front|
      worker.start(target: "/forever", link: 0)
      worker.close
      assert_equal ["exit", 0], front.ended(worker).first(2)
    end
  end

  def test_a_killed_thread_of_fibers_is_started_again
    both do |worker|
      2.times do
        worker.start(target: "/kill", link: 1)
        assert_equal "fiber", worker.get("/", link: 1)[2]
      end
    end
  end

  # Links to both halves, as many as with 32 front threads.
  def test_sixty_four_links
    both(links: 64) do |worker|
      assert_equal(%w[thread thread fiber fiber], [0, 31, 32, 63].map { |link| worker.get("/", link: link)[2] })
    end
  end

  def test_a_template_of_a_warm_worker_serves_with_both
    both do |worker, front|
      2.times { |link| worker.get("/", link: link) }
      control = worker.promote
      2.times { |link| worker.send_frame(Wire.frame(:drain), link: link) }
      front.ended(worker)
      front.follow(control)
      heir = front.fork_worker(1)
      assert_equal(%w[thread fiber], Array.new(2) { |link| heir.get("/", link: link)[2] })
    end
  end
end
