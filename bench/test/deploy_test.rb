# frozen_string_literal: true

# Tests deploy/ as it is: runs the Job's own command line twice concurrently, like two pods, and merges the results.
# Run: ruby bench/test/deploy_test.rb (with FIREBRICK=PATH for another binary than target/'s).
require "json"
require "minitest/autorun"
require "open3"
require "socket"
require "tmpdir"
require "yaml"
require_relative "built"

class DeployTest < Minitest::Test
  include Built

  PODS = 2
  RATE = 80

  def setup
    @job = YAML.safe_load_file(File.join(ROOT, "deploy/bench-job.yaml"))
    @container = @job.dig("spec", "template", "spec", "containers", 0)
    @dir = Dir.mktmpdir("deploy-test")
  end

  def teardown
    FileUtils.rm_rf(@dir)
  end

  def given = @container.fetch("env").to_h { |entry| [entry.fetch("name"), entry.fetch("value")] }

  def test_the_job_is_indexed_and_repeats_its_number_of_pods
    spec = @job.fetch("spec")
    assert_equal ["batch/v1", "Job", "Indexed"], [@job["apiVersion"], @job["kind"], spec["completionMode"]]
    assert_equal [spec["completions"]] * 2, [spec["parallelism"], Integer(given.fetch("PODS"))]
    assert_equal ["Never", 0], [spec.dig("template", "spec", "restartPolicy"), spec["backoffLimit"]]
    assert_equal spec.dig("template", "metadata", "labels"), spec.dig("template", "spec", "topologySpreadConstraints", 0, "labelSelector", "matchLabels")
  end

  def test_two_pods_load_a_server_and_their_results_join
    need_firebrick
    answering do |port|
      pods = Array.new(PODS) { |index| pod(index, port) }
      pods.each_with_index { |(pid, log), index| assert Process.wait2(pid)[1].success?, "pod #{index}: #{File.read(log)}" }
    end
    results = Array.new(PODS) { |index| JSON.parse(File.read(result(index))) }
    assert_equal(["pod 0", "pod 1"], results.map { |one| one["name"] })
    joined = join
    assert_equal results.sum { |one| one.dig("summary", "requests") }, joined.dig("summary", "requests")
    # Random arrivals: about RATE in a second, in both pods together.
    assert_includes (RATE / 2)..(RATE * 2), joined.dig("summary", "requests")
    assert_equal 0, joined.dig("summary", "errors")
  end

  # Flags in the README exist in the program.
  def test_flags_of_the_readme_are_known
    need_firebrick
    help, status = Open3.capture2e(BINARY, "bench", "--help")
    assert status.success?, help
    used = File.read(File.join(ROOT, "deploy/README.md")).scan(/(?<=[\s`])--[a-z][a-z-]+/).uniq - %w[--timeout --for]
    assert_includes used, "--merge"
    assert_equal([], used.reject { |flag| help.match?(/#{flag}\b/) })
  end

  private

  def result(index) = File.join(@dir, "#{index}.json")

  # The container's command as Kubernetes would run it; changed only where needed here.
  def pod(index, port)
    log = File.join(@dir, "#{index}.log")
    bin = File.join(@dir, "bin")
    FileUtils.mkdir_p(bin)
    FileUtils.ln_sf(File.expand_path(BINARY), File.join(bin, "firebrick"))
    env = given.merge("URL" => "http://127.0.0.1:#{port}/", "RATE" => RATE.to_s, "PODS" => PODS.to_s, "DURATION" => "1s", "START_EVERY" => "1",
                      "JOB_COMPLETION_INDEX" => index.to_s, "PATH" => "#{bin}:#{ENV.fetch('PATH')}")
    words = [*@container["command"], *@container["args"].map { |text| text.sub("/dev/termination-log", log) }]
    [Process.spawn(env, *words, in: File::NULL, out: result(index), err: log), log]
  end

  def join
    out, err, status = Open3.capture3(BINARY, "bench", "--merge", *Array.new(PODS) { |index| result(index) }, "--format", "json")
    assert status.success?, err
    JSON.parse(out)
  end

  # A server that responds to every request.
  def answering
    server = TCPServer.new("127.0.0.1", 0)
    clients = []
    accepting = Thread.new { loop { clients << answer(server.accept) } }
    yield server.local_address.ip_port
  ensure
    accepting&.kill
    clients&.each(&:kill)
    server&.close
  end

  def answer(client)
    Thread.new do
      while (line = client.gets)
        client.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok") if line == "\r\n"
      end
    rescue SystemCallError
      client.close
    end
  end
end
