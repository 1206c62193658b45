# frozen_string_literal: true

require "digest"
require "net/http"
require "securerandom"
require_relative "keda"
require_relative "machine"
require_relative "rollouts"

module Kubernetes
  # A Cluster whose only node is a Machine.
  class ContainerCluster < Cluster
    # Pods request little, so that the machine has room for all.
    RESOURCES = { "requests" => { "cpu" => "50m", "memory" => "128Mi" }, "limits" => { "cpu" => "1", "memory" => "512Mi" } }.freeze

    def initialize(plane, cache, images:)
      super(plane)
      @cache = cache
      @images = images
    end

    # Pods have their own addresses.
    def reach(address) = address

    def start_nodes = @nodes = [Machine.new(plane, @cache, images: @images).start]

    def start_keda = @nodes << Keda.new(plane, @cache).start

    def values(**given)
      super(**given, "image" => { "repository" => Images::REPOSITORY, "tag" => "1", "pullPolicy" => "Never" }, "resources" => RESOURCES)
    end

    def state = super + @nodes.map(&:report).join
  end

  # The chart's pods as a kubelet runs them: the image, not as root, with a read-only root file system. Tests the behaviour that needs a real
  # container: reaping of orphans, the place of large bodies, the memory limit, a resize, files left in /tmp by the previous container,
  # and the exit status. And features that need a cluster's names: the fleet on one page, load from several pods.
  class Containers
    PODS = 2
    GENERATORS = 2
    # Larger than the limit for memory.
    BODY = 64 << 20
    # Seconds.
    SOON = 30
    # The time for enough failed probes, plus the grace period of a process that does not react to TERM.
    RESTARTED_WITHIN = 180

    def initialize(cluster, rounds: 10, rate: 100)
      @cluster = cluster
      @plane = cluster.plane
      @rounds = rounds
      @rate = rate
    end

    def run
      install
      pod = @cluster.pods.first.dig("metadata", "name")
      look_inside(pod)
      send_body(pod)
      show_fleet(pod)
      bench
      leave_orphans(pod)
      exceed_memory(pod)
      resize(pod)
      freeze_front(pod)
      leave(pod)
      Rollouts.new(@cluster, rounds: @rounds, rate: @rate).run
    end

    private

    def install
      began = @cluster.now
      values = @cluster.values(seconds: 0.002, threads: 5, "replicas" => PODS)
      values["server"].merge!("workers" => "auto", "shutdownSeconds" => 10)
      @cluster.install(values)
      @cluster.wait_until("#{PODS} pods are ready", within: SOON) { @cluster.replicas == [PODS, PODS] }
      say("%d pods of the image are ready as restricted after %.0f s", PODS, @cluster.now - began)
    end

    def look_inside(pod)
      expect("the user is 1000", "1000:1000", shell(pod, "echo $(id -u):$(id -g)"))
      expect("process 1 is the server", "firebrick", shell(pod, "cat /proc/1/comm"))
      expect("the root folder cannot be written", "no", shell(pod, "touch /srv/app/x 2>/dev/null && echo yes || echo no"))
      expect("no process may gain privileges", "1", shell(pod, "sed -n 's/^NoNewPrivs:\\s*//p' /proc/1/status"))
      expect("no capability is left", "0000000000000000", shell(pod, "sed -n 's/^CapEff:\\s*//p' /proc/1/status"))
      expect("system calls are filtered", "2", shell(pod, "sed -n 's/^Seccomp:\\s*//p' /proc/1/status"))
      say("the server is process 1, not root, without capabilities, on a root folder that cannot be written")
    end

    def send_body(pod)
      body = Random.bytes(BODY)
      socket = TCPSocket.new(address(pod), 9292)
      socket.write("POST /digest HTTP/1.1\r\nHost: shop\r\nContent-Length: #{BODY}\r\nConnection: close\r\n\r\n", body[...BODY / 2])
      @cluster.wait_until("half of a body is kept in /tmp", within: SOON) { shell(pod, "ls -l /proc/1/fd | grep -c ' /tmp/#' || true").to_i.positive? }
      socket.write(body[BODY / 2..])
      expect("a body of #{BODY >> 20} MiB arrives", Digest::SHA256.hexdigest(body), socket.read.split("\r\n\r\n", 2).last)
      say("a body of %d MiB arrives, kept in /tmp", BODY >> 20)
    ensure
      socket&.close
    end

    # The command of docs/kubernetes.md, but in an existing pod.
    def show_fleet(pod)
      fleet = JSON.parse(shell(pod, "firebrick top --fleet #{Cluster::NAME}-control:9293 --once --json"))
      expect("the name stands for all pods", { "servers" => PODS, "up" => PODS, "unreachable" => 0 }, fleet["totals"].slice("servers", "up", "unreachable"))
      say("the name of the service leads firebrick top to %d servers", PODS)
    end

    # Runs the Job of deploy/, for one machine and five seconds.
    def bench
      kubectl("create", "secret", "generic", "firebrick-bench", "--from-literal=token=#{SecureRandom.hex(16)}")
      kubectl("apply", "-f", "-", input: job)
      kubectl("wait", "--for=condition=complete", "--timeout=90s", "job/firebrick-bench")
      report = JSON.parse(kubectl("logs", "--tail=-1", "-l", "job-name=firebrick-bench,batch.kubernetes.io/job-completion-index=0"))
      requests = report.dig("summary", "requests")
      expect("all requests succeed", requests, report.dig("outcome", "ok"))
      # About 1,000 requests at random times.
      expect("the load is #{requests} requests", true, requests.between?(800, 1200))
      kubectl("delete", "job", "firebrick-bench", "--cascade=foreground")
      say("a Job of %d pods sends %d requests and has one report: p50 %.1f ms", GENERATORS, requests, report.dig("summary", "latency_ms", "p50"))
    end

    def job
      text = File.read(File.join(ROOT, "deploy/bench-job.yaml"))
      { "registry.example.com/firebrick:latest" => "#{Images::REPOSITORY}:1", '"http://my-app.default.svc.cluster.local/"' => "http://#{Cluster::NAME}-control:9292/",
        'value: "2000"' => 'value: "200"', 'value: "4"' => "value: \"#{GENERATORS}\"", 'value: "60s"' => "value: 5s", 'cpu: "1"' => "cpu: 50m",
        "completions: 5" => "completions: #{GENERATORS + 1}", "parallelism: 5" => "parallelism: #{GENERATORS + 1}" }.each do |from, to|
        text.sub!(from, to) or raise Failure, "deploy/bench-job.yaml has no #{from} any more"
      end
      text
    end

    # Process 1 of a container adopts orphans.
    def leave_orphans(pod)
      shell(pod, "for i in 1 2 3 4 5; do (sleep 0.1 & exec true) & done; wait")
      @cluster.wait_until("orphans are reaped", within: SOON) do
        shell(pod, "cat /proc/[0-9]*/stat 2>/dev/null | grep -cE '^[0-9]+ \\((sleep|sh)\\) Z' || true") == "0"
      end
      say("orphans are reaped")
    end

    # The kernel kills the largest process, which is the worker.
    def exceed_memory(pod)
      response = ask(pod, "/eat")
      expect("a request whose worker was killed", "502", response.code)
      @cluster.wait_until("another worker serves", within: SOON) { ask(pod, "/").body == "Hello" }
      expect("the container was not started again", 0, container(pod)["restartCount"])
      say("a worker that exceeds the limit of memory is killed and replaced: its request gets %s, the pod stays", response.code)
    end

    def resize(pod)
      { "2" => 2, "1" => 1 }.each do |limit, workers|
        began = @cluster.now
        change = { "spec" => { "containers" => [{ "name" => "firebrick", "resources" => { "limits" => { "cpu" => limit } } }] } }
        kubectl("patch", "pod", pod, "--subresource", "resize", "--patch", JSON.generate(change))
        @cluster.wait_until("#{workers} workers with #{limit} CPU", within: SOON * 2) { metric(pod, 'firebrick_workers{state="ready"}') == workers }
        say("the pod is resized to %s CPU: %s after %.0f s", limit, workers == 1 ? "1 worker" : "#{workers} workers", @cluster.now - began)
      end
      expect("the container was not started again", 0, container(pod)["restartCount"])
    end

    # The probe fails, the kubelet kills the container, and the next one finds the files that it has left in /tmp.
    def freeze_front(pod)
      began = @cluster.now
      Process.kill(:STOP, front(pod))
      @cluster.wait_until("the container is started again", within: RESTARTED_WITHIN) { container(pod)["restartCount"] == 1 && container(pod)["ready"] }
      expect("it serves", "Hello", ask(pod, "/").body)
      expect("its control socket answers", "1", shell(pod, "firebrick stats --json | grep -c '\"workers\"'"))
      say("a server that does not respond is started again after %.0f s, with the same /tmp", @cluster.now - began)
    end

    # A finalizer keeps the pod's last status.
    def leave(pod)
      path = "/api/v1/namespaces/#{Cluster::NAMESPACE}/pods/#{pod}"
      @cluster.api.patch(path, "metadata" => { "finalizers" => ["example.com/read"] })
      began = @cluster.now
      kubectl("delete", "pod", pod, "--wait=false")
      ended = @cluster.wait_until("the pod ends", within: SOON) { container(pod).dig("state", "terminated") }
      seconds = @cluster.now - began
      expect("the status of a pod that is told to end", 0, ended["exitCode"])
      @cluster.api.patch(path, "metadata" => { "finalizers" => nil })
      say("a pod that is told to end exits with 0 after %.0f s", seconds)
    end

    def say(text, *values) = puts("  #{format(text, *values)}")

    def expect(what, wanted, found)
      raise Failure, "#{what}: #{wanted.inspect} was expected, and there is #{found.inspect}\n#{@cluster.state}" unless found == wanted
    end

    def kubectl(*words, **input) = @plane.run(:kubectl, "-n", Cluster::NAMESPACE, *words, **input)

    def shell(pod, text) = kubectl("exec", pod, "--", "sh", "-c", text).strip

    def object(pod) = @cluster.api.get("/api/v1/namespaces/#{Cluster::NAMESPACE}/pods/#{pod}")

    def container(pod) = object(pod).dig("status", "containerStatuses", 0)

    def address(pod) = object(pod).dig("status", "podIP")

    def ask(pod, path, port: 9292, headers: {})
      Net::HTTP.start(address(pod), port, read_timeout: SOON) { |http| http.get(path, headers) }
    end

    def metric(pod, name)
      ask(pod, "/metrics", port: 9293, headers: { "Authorization" => "Bearer #{Cluster::TOKEN}" }).body[/^#{Regexp.escape(name)} (\S+)$/, 1].to_f
    end

    # Returns process 1 of the pod's container, by its process id here.
    def front(pod)
      uid = object(pod).dig("metadata", "uid")
      found = Dir["/proc/[0-9]*"].find do |path|
        File.read("#{path}/cgroup").include?(uid) && File.read("#{path}/comm") == "firebrick\n" && File.read("#{path}/status")[/^NSpid:.*\t(\d+)$/, 1] == "1"
      rescue SystemCallError
        nil
      end
      Integer(File.basename(found || raise(Failure, "#{pod} has no server")))
    end
  end
end
