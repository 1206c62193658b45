# frozen_string_literal: true

require_relative "adapter"
require_relative "chart"
require_relative "kwok"
require_relative "late_service"
require_relative "node"
require_relative "plane"

module Kubernetes
  # A control plane, nodes with real servers, and the chart installed in a namespace that requires `restricted` pods.
  class Cluster
    NAMESPACE = "web"
    RELEASE = "shop"
    # The name of the chart's objects: that of the release and the chart.
    NAME = "shop-firebrick"
    TOKEN = "a-token-of-one-run"
    NODES = 2

    # The app of the runs: each request sleeps for the time in the variable.
    APP = <<~'RUBY'
      seconds = Float(ENV.fetch("APP_SECONDS"))
      run ->(_) { sleep seconds; [200, { "content-type" => "text/plain" }, ["Hello"]] }
    RUBY

    attr_reader :plane

    def initialize(plane)
      @plane = plane
      @nodes = []
    end

    # Returns the address on which the server of a pod listens.
    def reach(address) = Pod.loopback(address)

    def api = plane.api

    # Makes a namespace that refuses pods which are not `restricted`.
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

    # Starts kwok, whose nodes have no machines.
    def start_kwok(cache) = Kwok.new(plane, cache).start.tap { |kwok| @nodes << kwok }

    def start_adapter = @adapter = Adapter.new(plane, TOKEN).start

    # Installs or upgrades the chart. values: a hash.
    def install(values)
      file = File.join(plane.folder, "values.json")
      File.write(file, JSON.generate(values))
      plane.run(:helm, "upgrade", "--install", RELEASE, Chart::FOLDER, "--namespace", NAMESPACE, "--values", file, "--wait", "--timeout", "2m")
    rescue Failure => e
      raise Failure, "#{e.message}\n#{state}"
    end

    # Values for servers on this machine whose requests take that many seconds.
    def values(seconds:, threads:, **more)
      { "image" => { "repository" => "registry.example.com/shop", "tag" => "1" }, "server" => { "workers" => 1, "threads" => threads.to_s },
        "env" => [{ "name" => "APP_SECONDS", "value" => seconds.to_s }], "control" => { "enabled" => true, "token" => TOKEN }, **more }
    end

    def deployment = api.get("/apis/apps/v1/namespaces/#{NAMESPACE}/deployments/#{NAME}")

    # Returns the numbers of desired and ready pods.
    def replicas
      found = deployment
      [found.dig("spec", "replicas"), found.dig("status", "readyReplicas").to_i]
    end

    # The pods that are not being deleted.
    def pods = all_pods.reject { |pod| pod.dig("metadata", "deletionTimestamp") }

    # All pods, including those being deleted.
    def all_pods = api.get("/api/v1/namespaces/#{NAMESPACE}/pods").fetch("items")

    # Waits until the block is true. Fails after +within+ seconds, or when a node or program has ended unexpectedly.
    def wait_until(what, within:)
      deadline = now + within
      until (result = yield)
        check
        raise Failure, "#{what}: not after #{within} s\n#{state}" if now > deadline

        sleep 0.25
      end
      result
    end

    # Fails when a node or a program of the control plane has failed.
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
