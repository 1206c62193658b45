# frozen_string_literal: true

# `rack.out_of_band_gc`: full collections run between requests.

require "support/case"
require "support/load"

class OutOfBandGcTest < Case
  parallel!

  # Each request leaves objects that become old.
  APP = <<~'RUBY'
    text = { "content-type" => "text/plain" }
    kept = []
    busy = 0
    require "firebrick/worker"
    Firebrick::Worker::OutOfBandGc.prepend(Module.new do
      define_method(:collect) { super().tap { |made| File.write("collected.log", "#{Process.pid} #{made} #{busy}\n", mode: "a") } }
    end)
    run lambda { |env|
      busy += 1
      kept.clear if kept.size > 20_000
      2_000.times { kept << [+"old"] }
      GC.start(full_mark: false)
      sleep 0.005
      busy -= 1
      [200, text, [Process.pid.to_s]]
    }
  RUBY

  it "collects in one worker at a time, while it serves nothing" do
    firebrick_only
    # Since 3.2 Ruby also runs full collections when the heap of an object size has no free slots. This limit is reached first.
    env = { "RUBY_GC_HEAP_OLDOBJECT_LIMIT_FACTOR" => "1.5" }
    own = start(app: APP, workers: 3, threads: "2:2", settings: { rack: { out_of_band_gc: true } }, env: env)
    load = Load.new(own.address, clients: 2).start
    lines = -> { File.exist?(own.path("collected.log")) ? File.readlines(own.path("collected.log"), chomp: true).map(&:split) : [] }
    wait_until("collections", within: 60) { lines.call.count { |_, made,| made == "true" } >= 4 }
    load.stop
    assert_empty load.errors
    gc = own.stats.fetch("out_of_band_gc")
    assert_operator gc["count"], :>=, 4
    assert_operator gc["ms"], :>, 0
    assert_equal [200], load.completed.map(&:status).uniq
    assert_equal ["0"], lines.call.map(&:last).uniq
    wait_until("all workers to take requests again") do
      asked = Array.new(6) { connect(own).tap { |one| one.write(request("GET", "/")) } }
      asked.map { |one| one.read_response("GET").body }.uniq.size == 3
    end
  end

  it "leaves them to Ruby by default, and with a single worker" do
    firebrick_only
    [{}, { rack: { out_of_band_gc: true } }].each do |settings|
      own = start(app: APP, workers: 1, settings: settings)
      100.times { get("/", to: own) }
      sleep 1
      refute File.exist?(own.path("collected.log"))
    end
  end
end
