# frozen_string_literal: true

# `firebrick bench --find`: the highest rate that holds an objective, of an app whose capacity is known.

require "socket"
require "support/bench_case"

# Two threads that sleep for 20 ms serve 100 requests per second.
BENCH_FIND_APP = <<~'RUBY'
  run lambda { |env|
    sleep 0.02 if env["PATH_INFO"] == "/sleep"
    [env["PATH_INFO"] == "/missing" ? 404 : 200, { "content-type" => "text/plain" }, ["slept\n"]]
  }
RUBY

# Quiet, because rates depend on the machine; the app mostly waits.
class BenchFindTest < BenchCase
  quiet! 55

  shared_server app: BENCH_FIND_APP, workers: 1, threads: "2:2"

  it "finds the capacity of an app, and what ends it" do
    in_folder do |dir|
      page = "#{dir}/page.html"
      out, err, code = bench(server.url("/sleep"), "--find", "p95<200ms", "--within", "40s", "--format", "json", "--html", page, "--fail-if", "rate<20/s")
      assert_equal 0, code, err
      found = JSON.parse(out)
      rate, missed = found["result"].values_at("rate_per_s", "missed_per_s")
      # The queue has no room for random arrivals at 100/s; a busy machine serves fewer.
      assert_operator rate, :>, 45
      assert_operator rate, :<, 104
      assert_operator missed, :>, rate
      assert_includes %w[found time], found.dig("result", "ended")
      assert_operator found["seconds"], :<, 60
      rates = found["steps"].map { |step| step["rate_per_s"] }
      assert_equal rates.sort, rates
      assert(found["steps"].any? { |step| step["holds"] } && found["steps"].any? { |step| !step["holds"] })
      assert_match(/p95 .* queue/, found["findings"].first)
      assert_match(/Response time by rate/, File.read(page))
    end
  end

  it "prints a line per rate and the result, and fails by the rate" do
    out, err, code = bench(server.url("/sleep"), "--find", "p50<500ms", "--find", "errors<1%", "--within", "8s", "--fail-if", "rate<5k/s")
    assert_equal 1, code
    assert_match(%r{failed: rate<5k/s: it is [\d.,]+/s}, err)
    assert_match(/one user alone/, out)
    assert_match(%r{\d/s +[\d.]+ s .* holds}, out)
    assert_match(%r{^[\d.,]+/s hold p50<500ms and errors<1%}, out)
  end

  it "says when no rate holds" do
    out, _, code = bench(server.url("/sleep"), "--find", "p95<5ms", "--within", "20s")
    assert_equal 1, code
    assert_match(/No rate holds p95<5ms: one user alone misses it/, out)
    _, err, code = bench(server.url("/missing"), "--find", "p95<1s")
    assert_equal 1, code
    assert_match(/no successful response: status 404/, err)
  end

  it "prints the result so far after an interrupt" do
    output, input = IO.pipe
    pid = Process.spawn(Server.ruby_files, Server.binary, "bench", server.url("/sleep"), "--find", "p95<200ms", "--rate", "20/s", out: input, err: File::NULL)
    input.close
    text = +""
    text << output.readpartial(1000) until text.match?(/holds$/)
    Process.kill("INT", pid)
    text << output.read
    _, status = Process.wait2(pid)
    assert_equal 0, status.exitstatus, text
    assert_match(%r{^[\d.]+/s hold p95<200ms}, text)
    assert_match(/interrupted/, text)
  end

  it "explains wrong usage" do
    {
      ["--find", "p95>200ms"] => /no upper limit/, ["--find", "max<1s"] => /p999/,
      ["--find", "p95<1s", "--duration", "5s"] => /use --within/, ["--find", "p95<1s", "--workers", "2"] => /one process/,
      ["--find", "p95<1s", "--format", "ab"] => /cannot show a search/, ["--find", "p95<1s", "--fail-if", "p99>1s"] => /rate<100/,
      ["--find", "p95<1s", "--rate", "1..5/s:3s"] => /first rate to try/, ["--find", "p95<1s", "--within", "1s"] => /at least 5 s/,
      ["--within", "5s"] => /requires --find/
    }.each do |args, why|
      _, err, code = bench(server.url, *args)
      assert_equal 2, code, args.inspect
      assert_match why, err
    end
  end
end
