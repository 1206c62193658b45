# frozen_string_literal: true

# Tests deploy/ unchanged: runs the Job's own command line three times concurrently, like a coordinator's pod and two of load generators.
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

  WORKERS = 2
  RATE = 80

  def setup
    @service, @job = YAML.load_stream(File.read(File.join(ROOT, "deploy/bench-job.yaml")))
    @container = @job.dig("spec", "template", "spec", "containers", 0)
    @dir = Dir.mktmpdir("deploy-test")
  end

  def teardown
    FileUtils.rm_rf(@dir)
  end

  def given = @container.fetch("env").to_h { |entry| [entry.fetch("name"), entry["value"]] }

  def test_the_job_is_indexed_and_repeats_its_number_of_pods
    spec = @job.fetch("spec")
    assert_equal ["batch/v1", "Job", "Indexed"], [@job["apiVersion"], @job["kind"], spec["completionMode"]]
    assert_equal [spec["completions"]] * 2, [spec["parallelism"], Integer(given.fetch("WORKERS")) + 1]
    assert_equal ["Never", 0], [spec.dig("template", "spec", "restartPolicy"), spec["backoffLimit"]]
    assert_equal spec.dig("template", "metadata", "labels"), spec.dig("template", "spec", "topologySpreadConstraints", 0, "labelSelector", "matchLabels")
  end

  def test_pods_find_the_first_one_by_its_name
    name = @service["metadata"]["name"]
    port = @service.dig("spec", "ports", 0, "port")
    assert_equal ["None", true], @service["spec"].values_at("clusterIP", "publishNotReadyAddresses")
    assert_equal @service.dig("spec", "selector"), @job.dig("spec", "template", "metadata", "labels")
    assert_equal name, @job.dig("spec", "template", "spec", "subdomain")
    assert_equal "#{@job['metadata']['name']}-0.#{name}:#{port}", given.fetch("COORDINATOR")
    assert_equal port.to_s, given.fetch("LISTEN")[/\d+\z/]
    secret = @container.fetch("env").find { |entry| entry["name"] == "FIREBRICK_BENCH_TOKEN" }
    assert_equal %w[firebrick-bench token], secret.dig("valueFrom", "secretKeyRef").values_at("name", "key")
  end

  def test_three_pods_load_a_server_and_the_first_one_reports
    need_firebrick
    link_program
    @coordinator = "127.0.0.1:#{TCPServer.open('127.0.0.1', 0) { |free| free.local_address.ip_port }}"
    answering do |port|
      pods = Array.new(WORKERS + 1) { |index| pod(index, port) }
      pods.each_with_index { |(pid, log), index| assert Process.wait2(pid)[1].success?, "pod #{index}: #{File.read(log)}" }
    end
    found, *others = Array.new(WORKERS + 1) { |index| File.read(result(index)) }
    assert_equal([""] * WORKERS, others)
    found = JSON.parse(found)
    assert_equal WORKERS, found.dig("plan", "workers")
    # Random arrivals: about RATE in a second.
    assert_includes (RATE / 2)..(RATE * 2), found.dig("summary", "requests")
    assert_equal 0, found.dig("summary", "errors"), found
  end

  # Flags in the README exist in the program.
  def test_flags_of_the_readme_are_known
    need_firebrick
    help, status = Open3.capture2e(BINARY, "bench", "--help")
    assert status.success?, help
    used = File.read(File.join(ROOT, "deploy/README.md")).scan(/(?<=[\s`])--[a-z][a-z-]+/).uniq - %w[--timeout --for --tail --from-literal]
    assert_includes used, "--listen"
    assert_equal([], used.reject { |flag| help.match?(/#{flag}\b/) })
  end

  private

  def result(index) = File.join(@dir, "#{index}.json")

  # Before the first pod starts: a pod that looks for the program while its link is made again finds none.
  def link_program
    @bin = File.join(@dir, "bin")
    FileUtils.mkdir(@bin)
    FileUtils.ln_s(File.expand_path(BINARY), File.join(@bin, "firebrick"))
  end

  # The container's command as Kubernetes would run it, changed only where needed here.
  def pod(index, port)
    log = File.join(@dir, "#{index}.log")
    env = given.merge("URL" => "http://127.0.0.1:#{port}/", "RATE" => RATE.to_s, "WORKERS" => WORKERS.to_s, "DURATION" => "1s",
                      "LISTEN" => @coordinator, "COORDINATOR" => @coordinator, "FIREBRICK_BENCH_TOKEN" => "0123456789abcdef", "JOB_COMPLETION_INDEX" => index.to_s, "PATH" => "#{@bin}:#{ENV.fetch('PATH')}")
    words = [*@container["command"], *@container["args"].map { |text| text.sub("/dev/termination-log", log) }]
    [Process.spawn(env, *words, in: File::NULL, out: result(index), err: log), log]
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
