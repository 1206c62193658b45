# frozen_string_literal: true

require_relative "../../lib/firebrick/worker/out_of_band_gc"

# Full collections between requests.
class CollectionTest < Case
  # Makes garbage that becomes old, so that a full collection is soon due. The steps are small compared with the distance from "near" to the limit.
  AGING = <<~'RUBY'
    kept = []
    run lambda { |env|
      case env["PATH_INFO"]
      when "/age" then kept.clear if kept.size > 20_000; 1_500.times { kept << [+"old"] }; 3.times { GC.start(full_mark: false) }
      when "/slow" then sleep 0.3
      end
      [200, {}, [GC.stat(:major_gc_count).to_s]]
    }
  RUBY

  def test_a_worker_says_when_a_collection_is_due_and_makes_it_when_told
    [[1, 1], [3, 3]].each do |threads|
      serve(AGING, threads: threads, out_of_band_gc: 1) do |worker, _|
        before = worker.get[2].to_i
        # Ruby may come first with a collection of its own.
        assert 10.times.any? { due(worker) && collects?(worker) }, "no collection is made"
        assert_operator worker.get[2].to_i, :>, before
      end
    end
  end

  def test_it_says_so_once
    serve(AGING, out_of_band_gc: 1) do |worker, _|
      due(worker)
      5.times { worker.get("/age") }
      assert(worker.frames.none? { |frame| frame.kind == :due })
    end
  end

  def test_requests_that_it_has_come_first
    serve(AGING, threads: [2, 2], out_of_band_gc: 1) do |worker, _|
      due(worker)
      id = worker.start(target: "/slow")
      worker.send_frame(Wire.frame(:collect))
      assert_equal :response, worker.take { |frame| %i[response collected].include?(frame.kind) }.tap { |one| assert_equal id, one.id }.kind
      worker.take { |frame| frame.kind == :collected }
    end
  end

  def test_what_is_not_due_any_more_is_not_made
    serve(AGING, out_of_band_gc: 1) do |worker, _|
      worker.get
      before = worker.get[2]
      worker.send_frame(Wire.frame(:collect))
      assert_equal 0, worker.take { |frame| frame.kind == :collected }.length
      assert_equal before, worker.get[2]
    end
  end

  def test_without_the_setting_nothing_is_said
    serve(AGING) do |worker, _|
      20.times { worker.get("/age") }
      assert(worker.frames.none? { |frame| frame.kind == :due })
    end
  end

  # A model of Ruby's collector since 3.4.
  class NewRuby
    attr_accessor :majors, :needed
    attr_reader :allowed, :started

    def initialize
      @majors = 3
      @allowed = true
      @started = 0
    end

    def config(change = nil)
      @allowed = change[:rgengc_allow_full_mark] if change
      { rgengc_allow_full_mark: @allowed }
    end

    def stat(key) = key == :major_gc_count ? @majors : flunk(key)
    def latest_gc_info(key) = key == :need_major_by ? @needed : flunk(key)

    def start
      raise "not allowed" unless @allowed

      @started += 1
      @majors += 1
      @needed = nil
    end
  end

  def new_ruby
    ruby = NewRuby.new
    time = 100.0
    [ruby, Firebrick::Worker::OutOfBandGc.new(ruby, clock: -> { time }), ->(seconds) { time += seconds }]
  end

  def test_ruby_3_4_is_told_to_make_none_by_itself
    ruby, gc, = new_ruby
    refute ruby.allowed
    refute gc.due?
    ruby.needed = :oldgen
    assert gc.due?
    assert gc.collect
    assert_equal 1, ruby.started
    refute ruby.allowed
    refute gc.due?
    refute gc.collect
    gc.stop
    assert ruby.allowed
  end

  def test_ruby_3_4_may_after_a_while
    ruby, gc, wait = new_ruby
    ruby.needed = :oldgen
    assert gc.due?
    wait.call(Firebrick::Worker::OutOfBandGc::PATIENCE - 1)
    assert gc.due?
    refute ruby.allowed
    wait.call(1)
    assert gc.due?
    assert ruby.allowed
    # The collector runs one.
    ruby.majors += 1
    ruby.needed = nil
    refute gc.due?
    refute ruby.allowed
    ruby.needed = :oldgen
    wait.call(5)
    assert gc.due?
    refute ruby.allowed, "the time begins anew"
  end

  # A model of the collector before 3.4.
  class OldRuby < NewRuby
    attr_reader :figures

    undef_method :config

    def initialize
      super
      @figures = { old_objects: 10, old_objects_limit: 100, oldmalloc_increase_bytes: 0, oldmalloc_increase_bytes_limit: 1000 }
    end

    def stat(key) = @figures.fetch(key) { super }
  end

  def test_before_3_4_it_is_due_near_the_limits_of_ruby
    ruby = OldRuby.new
    gc = Firebrick::Worker::OutOfBandGc.new(ruby)
    refute gc.due?
    ruby.figures[:old_objects] = 80
    assert gc.due?
    ruby.figures[:old_objects] = 79
    refute gc.due?
    ruby.figures[:oldmalloc_increase_bytes] = 900
    assert gc.collect
    assert_equal 1, ruby.started
    gc.stop
  end

  private

  # Sends requests until the worker reports that a collection is due.
  def due(worker)
    200.times do
      worker.get("/age")
      return true if worker.frames.reject! { |frame| frame.kind == :due }
    end
    flunk "no collection is due"
  end

  # Asks for the collection that is due.
  def collects?(worker)
    worker.send_frame(Wire.frame(:collect))
    worker.take { |frame| frame.kind == :collected }.length.positive?
  end
end
