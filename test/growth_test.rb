# frozen_string_literal: true

# `workers = "MIN:MAX"`: the number of workers follows the load.

require "support/case"
require "support/load"
require "support/reloading"

GROWTH_APP = <<~'RUBY'
  text = { "content-type" => "text/plain" }
  run lambda { |env|
    case env["PATH_INFO"]
    when "/wait" then sleep 0.2; [200, text, [Process.pid.to_s]]
    when "/slow" then sleep 3; [200, text, ["finished"]]
    when "/short" then sleep 0.01; [200, text, [Process.pid.to_s]]
    else [200, text, [Process.pid.to_s]]
    end
  }
RUBY

class GrowthTest < Case
  parallel! slow: 75
  include Reloading

  def setup
    firebrick_only
  end

  def server(workers, **options)
    start(app: GROWTH_APP, workers: workers, threads: "1:1", environment: "production", **options)
  end

  def ready(own)
    own.stats["workers"].count { |worker| worker["state"] == "ready" }
  end

  def sizing(own)
    own.stats["sizing"].values_at("wanted", "min", "max", "pinned")
  end

  it "has one worker for each CPU that it may use now, unless an operator has said otherwise" do
    cpus = File.read("/proc/self/status")[/^Cpus_allowed_list:\s*(.+)$/, 1]
    skip "needs two CPUs" unless cpus.match?(/[,-]/)
    first = cpus[/\d+/]
    own = server(nil, args: ["--workers", "auto"])
    allow = ->(list) { assert system("taskset", "-pc", list, own.pid.to_s, out: File::NULL) }
    all = ready(own)
    assert_operator all, :>, 1
    allow.call(first)
    wait_until("one worker", within: 40) { ready(own) == 1 }
    assert_logged(/workers: #{all} → 1: auto: /, on: own)
    allow.call(cpus)
    wait_until("all workers", within: 40) { ready(own) == all }
    own.signal("TTOU")
    wait_until("one fewer") { ready(own) == all - 1 }
    allow.call(first)
    sleep 12
    assert_equal [all - 1, true], sizing(own).values_at(0, 3)
  end

  it "grows while requests wait, shrinks afterwards, says why and loses no request" do
    own = server("1:3")
    assert_equal [1, 1, 3, false], sizing(own)
    assert_match(/^\* 1 to 3 workers x 1:1 threads/, own.stdout)
    load = Load.new(own.address, clients: 6, path: "/wait").start
    wait_until("three workers", within: 90) { ready(own) == 3 }
    load.stop
    assert_empty load.errors
    assert_equal [200], load.completed.map(&:status).uniq
    assert_equal 3, load.completed.last(30).map(&:body).uniq.size
    why = /requests waited \d+ ms \(p95\) while (\d+ % of the CPU was idle|the workers used \d+ % of the CPU, and others the rest)/
    assert_logged(/workers: 1 → 2: #{why}/, on: own)
    assert_logged(/workers: 2 → 3: #{why}/, on: own)
    out, = own.command_line("stats", own.dir)
    assert_match(/^workers +3 of 1:3; grew 2 → 3, \d+ ?s ago: requests waited \d+ ms/, out)
    # A few requests do not keep the third worker.
    load = Load.new(own.address, clients: 1, path: "/short").start
    began = now
    wait_until("two workers", within: 150) { sizing(own).first == 2 }
    assert_operator now - began, :>, 45, "not at once"
    load.stop
    assert_empty load.errors
    assert_equal [200], load.completed.map(&:status).uniq
    assert_logged(/workers: 3 → 2: no request waited for \d+ s, and [\d.]+ of 3 threads are busy on average/, on: own)
    wait_until("the worker to leave") { own.stats["workers"].size == 2 }
    assert_equal 1, own.stats["deaths"]["drain"]
  end

  it "leaves a number that signals have set alone until the next reload" do
    own = server("1:3", files: { "version.txt" => "one" }, settings: { reload: { watch: "0s" } })
    own.signal("TTIN")
    wait_until("two workers") { ready(own) == 2 }
    assert_logged("workers: 1 → 2 by signal; the number stays until the next reload", on: own)
    assert_equal [2, 1, 3, true], sizing(own)
    assert_equal 2, own.control("/status")["workers"]
    load = Load.new(own.address, clients: 8, path: "/wait").start
    sleep 8
    assert_equal 2, sizing(own).first, "it would have grown"
    assert_reloads(own)
    assert_equal false, sizing(own).last
    wait_until("a third worker", within: 90) { ready(own) == 3 }
    load.stop
    assert_empty load.errors
    assert_equal [200], load.completed.map(&:status).uniq
    own.signal("TTOU")
    wait_until("a worker less") { sizing(own) == [2, 1, 3, true] }
  end

  it "keeps the number through a reload, and takes a new range from it" do
    own = server(nil, settings: { workers: "2:4", reload: { watch: "0s" } }, files: { "version.txt" => "one" })
    load = Load.new(own.address, clients: 8, path: "/wait").start
    wait_until("three workers", within: 90) { sizing(own).first == 3 && ready(own) == 3 }
    edit(own, "6:6")
    assert_reloads(own)
    wait_until("six workers") { ready(own) == 6 }
    assert_equal [6, 6, 6, false], sizing(own)
    assert_logged(/workers: [34] → 6: the setting is 6 now/, on: own)
    edit(own, "2:20")
    assert_reloads(own)
    assert_equal [6, 2, 12, false], sizing(own)
    assert_logged("workers is 2:20, but there can be at most 12 in this server; restart it for more", on: own)
    edit(own, "1:2")
    assert_reloads(own)
    wait_until("two workers", within: 20) { own.stats["workers"].size == 2 }
    load.stop
    assert_empty load.errors
    assert_equal [200], load.completed.map(&:status).uniq
  end

  it "finishes what a leaving worker has begun" do
    own = server(nil, settings: { workers: 3, reload: { watch: "0s" } }, files: { "version.txt" => "one" })
    slow = Array.new(3) { connect(own).write(request("GET", "/slow")) }
    wait_until("all to be served") { own.stats["workers"].sum { |worker| worker["busy_threads"] } == 3 }
    [2, 1].each do |left|
      own.signal("TTOU")
      wait_until("one to leave") { ready(own) == left }
    end
    slow.each { |connection| assert_equal "finished", connection.read_response.body }
  end

  it "starts the minimum only in development" do
    own = start(app: GROWTH_APP, workers: "2:4", threads: "1:1", environment: "development")
    assert_equal [2, 2, 2, false], sizing(own)
    out, = own.command_line("check", own.dir, "-w", "2:4", "-e", "development")
    assert_match(/^ +workers +2 x 1:3 threads \(-?-?w?(orkers)?.*; in development the minimum\)/, out)
    out, = own.command_line("check", own.dir, "-w", "2:4", "-e", "production")
    assert_match(/^ +workers +2:4 x 1:3 threads/, out)
  end

  private

  def edit(own, workers)
    path = own.path("firebrick.toml")
    File.write(path, File.read(path).sub(/^workers = .*$/, "workers = #{workers.inspect}"))
  end
end
