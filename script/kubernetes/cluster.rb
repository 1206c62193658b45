# frozen_string_literal: true

require_relative "adapter"
require_relative "chart"
require_relative "kwok"
require_relative "late_service"
require_relative "node"
require_relative "plane"

module Kubernetes
  # A control plane, nodes with real servers, and the chart installed in a namespace whose pods have to be `restricted`.
  class Cluster
    NAMESPACE = "web"
    RELEASE = "shop"
    # Objects of the chart are called as the release and the chart.
    NAME = "shop-firebrick"
    TOKEN = "a-token-of-one-run"
    NODES = 2

    # How the app of the runs is served: each request sleeps as long as the variable says.
    APP = <<~'RUBY'
      seconds = Float(ENV.fetch("APP_SECONDS"))
      run ->(_) { sleep seconds; [200, { "content-type" => "text/plain" }, ["Hello"]] }
    RUBY

    attr_reader :plane

    def initialize(plane)
      @plane = plane
      @nodes = []
    end

    # Where the server of a pod's address listens.
    def reach(address) = Pod.loopback(address)

    def api = plane.api

    # A namespace in which pods are refused that are not `restricted`.
    def namespace(name = NAMESPACE)
      api.post("/api/v1/namespaces", "kind" => "Namespace", "apiVersion" => "v1",
                                     "metadata" => { "name" => name, "labels" => { "pod-security.kubernetes.io/enforce" => "restricted", "pod-security.kubernetes.io/enforce-version" => "latest" } })
    end

    def start_nodes
      app = File.join(plane.folder, "app")
      FileUtils.mkdir_p(app)
      File.write(File.join(app, "config.ru"), APP)
      @nodes = Array.new(NODES) { |number| Node.new(api, "node-#{number}", app: app, number: number).start }
    end

    # Nodes without machines in their place.
    def start_kwok(cache) = Kwok.new(plane, cache).start.tap { |kwok| @nodes << kwok }

    def start_adapter = @adapter = Adapter.new(plane, TOKEN).start

    # Installs or upgrades the chart; values as a hash.
    def install(values)
      file = File.join(plane.folder, "values.json")
      File.write(file, JSON.generate(values))
      plane.run(:helm, "upgrade", "--install", RELEASE, Chart::FOLDER, "--namespace", NAMESPACE, "--values", file, "--wait", "--timeout", "2m")
    rescue Failure => e
      raise Failure, "#{e.message}\n#{state}"
    end

    # Values for servers on this machine, whose requests take so long.
    def values(seconds:, threads:, **more)
      { "image" => { "repository" => "registry.example.com/shop", "tag" => "1" }, "server" => { "workers" => 1, "threads" => threads.to_s },
        "env" => [{ "name" => "APP_SECONDS", "value" => seconds.to_s }], "control" => { "enabled" => true, "token" => TOKEN }, **more }
    end

    def deployment = api.get("/apis/apps/v1/namespaces/#{NAMESPACE}/deployments/#{NAME}")

    # Pods that the deployment wants, and those that are ready.
    def replicas
      found = deployment
      [found.dig("spec", "replicas"), found.dig("status", "readyReplicas").to_i]
    end

    # The pods that stay.
    def pods = all_pods.reject { |pod| pod.dig("metadata", "deletionTimestamp") }

    # With those that leave.
    def all_pods = api.get("/api/v1/namespaces/#{NAMESPACE}/pods").fetch("items")

    # Waits until the block says yes. Fails after so many seconds, or when something has ended that should not.
    def wait_until(what, within:)
      deadline = now + within
      until (result = yield)
        check
        raise Failure, "#{what}: not after #{within} s\n#{state}" if now > deadline

        sleep 0.25
      end
      result
    end

    # Fails when a node or a program of the control plane has.
    def check(*others)
      plane.check
      failed = [*@nodes, *others].filter_map(&:failure).first
      raise failed if failed
    end

    def state
      plane.attempt(:kubectl, "-n", NAMESPACE, "get", "deployments,pods,hpa").first +
        plane.attempt(:kubectl, "-n", NAMESPACE, "get", "events", "--sort-by=.lastTimestamp").first.lines.last(15).join
    end

    def stop
      @nodes.each(&:stop)
      @adapter&.stop
    end

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end
