# frozen_string_literal: true

# `reload.step`: several workers are replaced at a time, and the number that serves never falls below the setting.

require "support/case"
require "support/reloading"

class ReloadStepTest < Case
  parallel! slow: true

  include Reloading

  # The states of workers, sampled while the block runs.
  def states_during(own)
    seen = []
    over = false
    looking = Thread.new { seen << own.control("/stats")["workers"].map { |worker| worker["state"] }.tally until over }
    yield
    over = true
    looking.join
    seen
  end

  def slow_boot = "#{Reloading::APP}\nFirebrick.after_fork { sleep 0.7 }"

  it "replaces a percentage of the workers at a time, with as many beyond the wanted ones" do
    firebrick_only
    own = launch_app(app: slow_boot, workers: 4, settings: { reload: { step: "50%" } })
    deploy(own, "two")
    seen = states_during(own) { assert_reloads(own) }
    assert_equal 2, seen.map { |states| states.fetch("booting", 0) }.max, -> { seen.uniq.inspect }
    assert_equal 4, seen.map { |states| states.fetch("ready", 0) }.min, -> { seen.uniq.inspect }
    assert_operator seen.map { |states| states.fetch("ready", 0) + states.fetch("booting", 0) }.max, :<=, 6
    assert_equal "two", get("/", to: own).body
  end

  it "uses the step of the settings that the last reload has put in force" do
    firebrick_only
    own = launch_app(app: slow_boot, workers: 3)
    one_by_one = states_during(own) { assert_reloads(own) }
    assert_equal 1, one_by_one.map { |states| states.fetch("booting", 0) }.max
    File.write(own.path("firebrick.toml"), "[reload]\nwatch = 0\nstep = 3\n")
    assert_reloads(own)
    at_once = states_during(own) { assert_reloads(own) }
    assert_equal 2, at_once.map { |states| states.fetch("booting", 0) }.max, "the third was on trial"
  end
end
