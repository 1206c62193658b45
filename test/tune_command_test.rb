# frozen_string_literal: true

# `firebrick tune` on apps of known behaviour: its diagnosis, its recommendation, and its end.

require "etc"
require "support/tune_case"

# Alone, because it measures the apps' use of the machine, like the other suites here that are not parallel.
class TuneProfileTest < TuneCase
  it "detects an app that waits, and recommends threads" do
    figures = tuned_calmly(app("sleep"), *GRID, *LOAD)
    assert_equal "waiting", figures.dig("nature", "kind"), words(figures)
    assert_equal 8, best(figures).last
    assert_equal 4, figures["cells"].size
    assert_operator cell(figures, 1, 8)["rate_per_s"], :>, 3 * cell(figures, 1, 1)["rate_per_s"]
    figures["cells"].each { |one| assert_operator one["pss_bytes"], :>, 1_000_000 }
    assert_in_delta 20, cell(figures, 1, 1)["app_ms"], 10
  end

  it "detects an app that computes, and recommends processes" do
    figures = tuned_calmly(app("cpu"), *GRID, *LOAD)
    assert_equal "computing", figures.dig("nature", "kind"), words(figures)
    assert_equal 2, best(figures).first, figures["recommendation"].inspect if Etc.nprocessors > 1
  end

  it "detects an app that does both" do
    figures = tuned_calmly(app("mix"), *GRID, *LOAD)
    assert_equal "mixed", figures.dig("nature", "kind"), words(figures)
    assert_equal 8, best(figures).last
  end

  it "detects a leak" do
    figures = tuned_calmly(app("leak"), "-w", "1", "-t", "4", "-c", "8", "-n", "1600", "--repeats", "2")
    leak = figures.dig("nature", "leak")
    refute_nil leak, words(figures)
    assert_in_delta 150_000, leak["bytes_per_request"], 75_000
    assert_match(/leak/, words(figures))
  end

  it "reports no leak for an app without one" do
    assert_nil tuned(app("sleep"), "-w", "1", "-t", "8", "-c", "8", "-n", "800").dig("nature", "leak")
  end

  it "detects an app that holds the GVL while idle, and recommends processes" do
    figures = tuned_calmly(app("hog"), *GRID, *LOAD)
    assert_equal "lock_hog", figures.dig("nature", "kind"), words(figures)
    assert_equal 2, best(figures).first
  end
end

class TuneSearchTest < TuneCase
  it "finds the best shape from few cells" do
    figures = tuned(app("sleep"), *LOAD)
    assert_operator figures["cells"].size, :<=, 10
    assert_operator best(figures).reduce(:*), :>=, 12, "sixteen users wait at a time: #{best(figures)}"
    refute_empty figures["looks"]
    refute_empty figures["predictions"]
    refute_nil cell(figures, *best(figures)), "the recommended shape was measured"
  end

  it "limits the server to fewer CPUs" do
    figures = tuned(app("cpu"), "-w", "2", "-t", "1", "-c", "4", "-n", "60", "--cpus", "1")
    assert_equal [1.0, 1.0], figures["cells"].map { |one| one["cores"] } + [figures.dig("machine", "cpus_of_server")]
    assert_operator cell(figures, 2, 1)["cpu_cores"], :<, 1.2
  end

  it "measures other servers in turn" do
    figures = tuned(app("sleep"), "-w", "1,2", "-t", "4", "-c", "8", "-n", "80", "--against", "puma,unicorn", "--repeats", "2")
    others = figures["others"].to_h { |one| [one["server"], one] }
    assert_equal([[1, 4], [2, 4]], others["puma"]["cells"].map { |one| one.values_at("processes", "threads") })
    others["puma"]["cells"].each { |one| assert_operator one["rate_per_s"], :>, 50, one.inspect }
    assert_match(/\A\d+\.\d+/, others["puma"]["version"])
    assert_empty others["unicorn"]["cells"], "unicorn has no threads"
  end
end

# Tests whose results do not depend on the speed of the machine.
class TuneRulesTest < TuneCase
  parallel!

  it "continues when shapes crash, reports where and why, and recommends one that works" do
    out, err, code = tune(app("crash"), *GRID, *LOAD, "--noisy", "--json", File.join(@folder, "cells.json"))
    assert_equal 0, code, err
    figures = JSON.parse(File.read(File.join(@folder, "cells.json")))
    assert_equal 2, figures.dig("nature", "crash", "from_processes")
    assert_equal [1, 8], best(figures)
    assert_match(/2 +1 +crashed: /, out)
    assert_match(/licence for one process only/, out)
    assert_match(/licence for one process only/, cell(figures, 2, 1)["crashed"])
  end

  it "does not try shapes larger than one that crashed" do
    figures = tuned(app("crash"), *LOAD)
    assert_equal 1, best(figures).first
    crashed = figures["cells"].select { |one| one["crashed"] }
    assert_equal([2], crashed.map { |one| one["processes"] })
  end

  it "respects a budget and reports what it rules out" do
    figures = tuned(app("sleep"), *GRID, *LOAD, "--db-connections", "8")
    assert_operator best(figures).reduce(:*), :<=, 8
    assert(figures.dig("recommendation", "rejected").any? { |one| one["shape"] == { "processes" => 2, "threads" => 8 } })
  end

  it "requests the URLs of a file, and counts failures" do
    dir = own_app(<<~'RUBY')
      run(->(env) { [env["PATH_INFO"] == "/wrong" ? 500 : 200, {}, [env["REQUEST_METHOD"], env["HTTP_X_A"].to_s]] })
    RUBY
    File.write(File.join(@folder, "urls.txt"), "http://example.test/right\nhttp://example.test/wrong POST a=b\n")
    out, err, code = tune(dir, "-w", "1", "-t", "2", "-c", "2", "-n", "40", "--urls", "urls.txt", "-H", "X-A: 1", "--repeats", "2", "--noisy")
    assert_equal 0, code, err
    assert_match(%r{GET /right, POST /wrong}, out)
    assert_match(/20 of 40 requests failed/, out)
  end
end

class TuneEndTest < TuneCase
  parallel!

  # Runs tune until a row of the table is printed, sends it a signal, and waits for its end.
  def interrupted(signal, *args)
    Open3.popen3(environment, Server.binary, "tune", *args, chdir: @folder) do |stdin, out, err, process|
      stdin.close
      text = +""
      text << out.readpartial(4096) until text.match?(/^ +1 +8 +\d/)
      wait_until(within: 20) { serving? }
      # The guard learns of a server a moment after its start.
      sleep 0.3
      Process.kill(signal, process.pid)
      begin
        text << out.read
      rescue EOFError
        nil
      end
      return text, err.read, process.value
    end
  end

  # The server of the next cell is running.
  def serving?
    Processes.in_directory(@folder).any? { |one| Processes.command(one.pid).include?("--workers=2") }
  end

  def gone?
    wait_until(within: 20) { Processes.in_directory(@folder).empty? }
  end

  %w[INT TERM].each do |name|
    it "ends cleanly with partial results after #{name}" do
      out, err, status = interrupted(name, app("sleep"), *GRID, "-c", "16", "-d", "2s", "--noisy")
      assert_equal 0, status.exitstatus, err
      assert_match(/Stopped early/, out)
      assert_match(/Recommended: 1x8/, out)
      assert gone?
    end
  end

  it "leaves no server behind when it is killed" do
    _, _, status = interrupted("KILL", app("sleep"), *GRID, "-c", "16", "-d", "2s")
    assert_equal 9, status.termsig
    assert gone?, "the guard did not stop the server"
    assert wait_until(within: 10) { Dir.empty?(File.join(@folder, "tmp")) }, "the guard did not remove its files"
  end
end

class TuneCommandTest < TuneCase
  parallel!

  it "reports mistakes before it starts anything" do
    out, err, code = tune(app("sleep"), "--memory", "lots", "--slo", "fast", "--workers", "0", "--against", "thin")
    assert_equal [2, ""], [code, out]
    ["--memory", "p95<200ms", "--workers", "1,2,10", "thin", "unicorn"].each { |word| assert_includes err, word }
  end

  it "needs an app" do
    _, err, code = tune(@folder)
    assert_equal 2, code
    assert_match(/config\.ru/, err)
    _, err, code = tune("nowhere")
    assert_equal 2, code
    assert_match(/nowhere/, err)
  end

  it "shows the log of an app that does not start" do
    out, _, code = tune(own_app("raise 'no database here'"), "-w", "1", "-t", "1")
    assert_equal 1, code
    assert_match(/crashed: exited before it was ready/, out)
    assert_match(/no database here/, out)
  end

  it "limits the time for an app to start" do
    out, _, code = tune(own_app("sleep 60\nrun ->(_) { [200, {}, []] }"), "-w", "1", "-t", "1", "--boot-timeout", "1s")
    assert_equal 1, code
    assert_match(/crashed: .*1 s \(--boot-timeout\)|crashed: exited before it was ready/, out)
  end

  it "refuses to change an invalid file, before it measures" do
    dir = app("sleep")
    File.write(File.join(dir, "firebrick.toml"), "workers = = 1\n")
    out, err, code = tune(dir, "--write")
    assert_equal [2, ""], [code, out]
    assert_match(/firebrick\.toml/, err)
  end

  it "writes its recommendation and keeps the rest of the file" do
    dir = app("sleep")
    File.write(File.join(dir, "firebrick.toml"), "# ours\nthreads = \"1:5\" # few\n\n[limits]\nmax_body = \"1MB\"\n")
    out, err, code = tune(dir, "-w", "1", "-t", "3", "-c", "3", "-n", "30", "--repeats", "2", "--noisy", "--write", "--html", File.join(@folder, "report.html"))
    assert_equal 0, code, err
    assert_equal "# ours\nthreads = 3 # few\nworkers = 1\n\n[limits]\nmax_body = \"1MB\"\n", File.read(File.join(dir, "firebrick.toml"))
    assert_match(/^ +-threads = "1:5" # few\n +\+threads = 3 # few$/, out)
    ["workers = 1\n", "threads 3, 3", "WEB_CONCURRENCY=1", "RAILS_MAX_THREADS=3"].each { |line| assert_includes out, line }
    page = File.read(File.join(@folder, "report.html"))
    assert_includes page, "<svg"
    refute_match(/(src|href)="https?:/, page)
  end
end
