# frozen_string_literal: true

# A new release is compared with the old one route by route, on the requests of clients: what is worse in one route of many is found and
# named, and an unchanged app passes.

require "support/case"
require "support/load"
require "support/reloading"

class ReloadTrialTest < Case
  parallel! slow: true

  include Reloading

  # Six routes, all with the same time. A release has a fault in one of them.
  APP = <<~'RUBY'
    fault = File.read(File.join(__dir__, "version.txt"))
    text = { "content-type" => "text/plain" }
    run lambda { |env|
      path = env["PATH_INFO"]
      env["firebrick.route"] = "shop##{path[1..]}" unless path == "/up"
      faulty = path == "/route3"
      sleep(faulty && fault == "slow" ? 0.03 : 0.01)
      raise "planted" if faulty && fault == "failing" && rand < 0.2
      Array.new(8_000) { "x".dup } if faulty && fault == "allocating"
      [200, text, [fault]]
    }
  RUBY

  # The fault => the message that names it.
  FAULTS = {
    "slow" => /shop#route3 p\d\d(?:\.\d)? is \d+\.\d ms, was \d+\.\d ms \(an accident with a probability below 1 in \d{4,}\)/,
    "failing" => /failed with 5xx.*; most suspicious: shop#route3 failed|requests failed, \d+ of them for shop#route3 \(in the old code 0 of|^firebrick: shop#route3 failed in \d+ of \d+ requests \(\d+\.\d %; in the old code 0\.0 %\)/,
    "allocating" => /shop#route3 (allocates about \d+ objects, before \d+ |p50 of its processor time|p\d+(?:\.\d+)? is)/
  }.freeze

  def launch(**options)
    firebrick_only
    launch_app(app: APP, version: "good", workers: 2, threads: "4:4", settings: { reload: { watch: "60s", share: 10 } }, **options)
  end

  def load_routes(own)
    (0..5).map { |route| Load.new(own.address, clients: 2, path: "/route#{route}").start }
  end

  # The version of each response, and the errors of all loads.
  def stopped(loads)
    loads.each(&:stop)
    assert_empty loads.flat_map(&:errors)
    loads.flat_map(&:completed)
  end

  FAULTS.each do |fault, message|
    it "finds and names the one route of six that is #{fault}" do
      own = launch
      before = workers_of(own).sort
      loads = load_routes(own)
      deploy(own, fault)
      out, err, code = reload(own)
      completed = stopped(loads)
      assert_equal 1, code, -> { out + err }
      assert_match message, err
      assert_workers own, before
      met = completed.count { |one| one.body != "good" }
      assert_operator met, :<=, (completed.size * 0.12).ceil + 5, "of #{completed.size}: no more than its share"
      assert_operator met, :>, 0
    end
  end

  it "finds it with fibers, too" do
    own = launch(args: ["--fibers", "8"])
    loads = load_routes(own)
    deploy(own, "slow")
    out, err, code = reload(own)
    stopped(loads)
    assert_equal 1, code, -> { out + err }
    assert_match FAULTS["slow"], err
  end

  it "passes an app that has not changed, and says by route what is not known" do
    own = launch(settings: { reload: { watch: "6s", share: 10 } })
    loads = load_routes(own)
    out = assert_reloads(own)
    stopped(loads)
    assert_match(/^watching: \d+ requests, 0 % failed, \d+\.\d ms on average; by route: \d no worse/, out)
    refute_match(/suspicious/, out)
  end

  it "says which routes had too few requests" do
    own = launch(settings: { reload: { watch: "3s", share: 50 } })
    load = Load.new(own.address, clients: 4, path: "/route0").start
    rare = Load.new(own.address, clients: 1, path: "/route1").start
    sleep 1
    rare.stop
    command = Thread.new { reload(own) }
    wait_until("the reload to watch") { own.stats.dig("reloads", "running", "stage") == "watching" }
    5.times { get("/route1", to: own) }
    out, err, code = command.value
    load.stop
    assert_equal 0, code, -> { out + err }
    assert_match(/by route: 1 no worse, 1 with too few requests to tell \(shop#route1: \d+ more\)/, out)
  end
end
