# frozen_string_literal: true

# `firebrick tune` and fibers: when it tries them, and its messages about them.

require "support/tune_case"

# Alone, because it measures the apps' use of the machine.
class TuneFibersTest < TuneCase
  WAITS = "run(->(_) { sleep 0.05; [200, {}, ['slept']] })"
  # One cell on threads, and sixty-four users: eight threads are too few.
  MANY = %w[-w 1 -t 8 -c 64 -n 640 --repeats 2].freeze

  def cells_with_fibers(figures)
    figures["cells"].select { |one| one["fibers"].positive? }
  end

  def told(figures)
    figures.dig("fibers", "words").join("\n")
  end

  it "tries fibers on an app that waits, recommends them where they gain, and writes them" do
    dir = own_app(WAITS)
    page, json = %w[tune.html tune.json].map { |name| File.join(@folder, name) }
    out, err, code = tune(dir, *MANY, "--noisy", "--fibers", "auto", "--html", page, "--json", json, "--write")
    assert_equal 0, code, err
    figures = JSON.parse(File.read(json))
    with, without = figures["fibers"].values_at("with", "without")
    assert_equal "gain", figures.dig("fibers", "outcome"), told(figures)
    assert_operator with["rate_per_s"], :>, 2 * without["rate_per_s"]
    assert_operator figures.dig("fibers", "waiting"), :>, 0.8
    assert_equal({ "processes" => 1, "threads" => 1, "fibers" => 100 }, figures.dig("recommendation", "best", "shape"))
    assert_match(/1 +1x100 .* fibers(,|$)/, out)
    assert_match(%r{Fibers gain: 1x1x100, .* requests/s, p99 .* without fibers 1x8, }m, out.gsub(/\s+/, " "))
    assert_includes File.read(page), "Fibers gain: 1x1x100"
    assert_equal "workers = 1\nthreads = 1\nfibers = 100\n", File.read(File.join(dir, "firebrick.toml"))

    out, err, code = Open3.capture3(environment, Server.binary, "plan", "--from", json, "--rate", "100/s", "--json")
    assert_equal 0, code.exitstatus, err
    size = JSON.parse(out)["answers"].first["size"]
    assert_equal [1, 1, 100], size.values_at("workers", "threads", "fibers")
  end

  it "tries them by itself when it searches" do
    figures = tuned(own_app(WAITS), "-c", "64", "-n", "640")
    refute_empty cells_with_fibers(figures)
    assert_includes %w[gain no_gain], figures.dig("fibers", "outcome"), told(figures)
    assert_match(/Fibers gain/, told(figures))
    # One cell of each kind was measured in full more than once.
    twice = figures["cells"].select { |one| one["repeats"] > 1 }
    assert_equal [false, true], twice.map { |one| one["fibers"].positive? }.uniq.sort_by(&:to_s)
  end

  it "gives an app that computes none, and says why" do
    figures = tuned(app("cpu"), *GRID, *LOAD, "--fibers", "auto")
    assert_empty cells_with_fibers(figures)
    assert_equal "computes", figures.dig("fibers", "outcome")
    assert_match(/\ANo fibers: the app computes\. A request waits for \d+ % of its time/, told(figures))
    assert_nil figures.dig("recommendation", "best", "shape", "fibers")
  end
end

# Tests whose results do not depend on the speed of the machine.
class TuneFibersRulesTest < TuneCase
  parallel!

  FEW = %w[-w 1 -t 1,4 -c 8 -n 40 --repeats 2].freeze
  SLEEPS = "run(->(_) { sleep 0.02; [200, {}, ['slept']] })"

  def sequel
    skip "Sequel is not installed" unless system("ruby", "-rsequel", "-e", "", err: File::NULL)
    own_app("require 'sequel'\n#{SLEEPS}")
  end

  it "does not try what a library forbids, names it, and what to do" do
    figures = tuned(sequel, *FEW, "--fibers", "auto")
    assert_equal([0, 0], figures["cells"].map { |one| one["fibers"] })
    assert_equal "forbidden", figures.dig("fibers", "outcome")
    words = figures.dig("fibers", "words").join
    assert_match(/No fibers, because of Sequel: .*Sequel\.extension :fiber_concurrency/, words)
    assert_equal(%w[Sequel forbids], figures.dig("fibers", "libraries").first.values_at("name", "with_fibers"))
  end

  it "tries what it is told to, and goes on when the app does not start with it" do
    figures = tuned(sequel, *FEW, "--fibers", "50")
    crashed = figures["cells"].select { |one| one["crashed"] }
    assert_equal([50, 50], crashed.map { |one| one["fibers"] })
    assert_match(/Sequel\.extension :fiber_concurrency/, crashed.first["crashed"])
    assert_equal [1, 4], best(figures)
    assert_nil figures.dig("nature", "crash"), "threads run"
  end

  it "says what weakens them" do
    skip "sqlite3 is not installed" unless system("ruby", "-rsqlite3", "-e", "", err: File::NULL)
    figures = tuned(own_app("require 'sqlite3'\n#{SLEEPS}"), *FEW, "--fibers", "auto")
    refute_empty(figures["cells"].select { |one| one["fibers"].positive? })
    assert_match(/With fibers, sqlite3 reads and writes files with the thread/, figures.dig("fibers", "words").join("\n"))
  end

  it "measures a table as it is given, and says how to measure fibers" do
    figures = tuned(own_app(SLEEPS), *FEW)
    assert_equal 2, figures["cells"].size
    assert_equal "not_tried", figures.dig("fibers", "outcome")
    assert_match(/add --fibers auto to measure them/, figures.dig("fibers", "words").join)
    assert_equal "not_tried", tuned(own_app(SLEEPS), *FEW, "--fibers", "off").dig("fibers", "outcome")
  end

  it "turns fibers of the configuration off where threads are measured, and in the file when they are better" do
    dir = own_app("run(->(env) { sleep 0.02; [200, {}, [env['rack.multithread'].to_s]] })")
    File.write(File.join(dir, "firebrick.toml"), "fibers = 20 # many\n")
    _, err, code = tune(dir, "-w", "1", "-t", "2", "-c", "2", "-n", "20", "--repeats", "2", "--noisy", "--fibers", "off", "--write")
    assert_equal 0, code, err
    assert_equal "fibers = \"off\" # many\nworkers = 1\nthreads = 2\n", File.read(File.join(dir, "firebrick.toml"))
  end

  it "keeps to the database connections" do
    figures = tuned(own_app(SLEEPS), *FEW, "--fibers", "auto", "--db-connections", "6")
    assert_equal([6], figures["cells"].map { |one| one["fibers"] }.select(&:positive?))
    assert_operator best(figures).reduce(:*), :<=, 6
  end

  it "refuses a number of fibers that is none" do
    out, err, code = tune(own_app(SLEEPS), "--fibers", "many")
    assert_equal [2, ""], [code, out]
    assert_match(/--fibers: "many" is not a whole number from 1 to 30000; expected a list such as 100,1000, or auto, or off/, err)
  end
end
