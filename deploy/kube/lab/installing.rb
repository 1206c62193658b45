# frozen_string_literal: true

require_relative "cluster"

module Kubernetes
  # The chart against a real API server: installs each file of deploy/chart/ci, first with `--dry-run=server`, in namespaces that refuse pods which
  # are not `restricted`; and checks that such pods are refused.
  class Installing
    def initialize(cluster, schemas)
      @cluster = cluster
      @plane = cluster.plane
      @schemas = schemas
    end

    def run
      @schemas.custom.each { |file| @plane.run(:kubectl, "apply", "--server-side", "-f", file) }
      @plane.run(:kubectl, "wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
      files = Dir[File.join(Chart::FOLDER, "ci/*-values.yaml")].sort
      files.each { |file| install(file, File.basename(file, "-values.yaml")) }
      keep(files.last)
      refuse(files.first)
    end

    private

    def install(file, name)
      @cluster.namespace(name)
      prepare(name)
      words = ["upgrade", "--install", "shop", Chart::FOLDER, "--namespace", name, "--values", file]
      @plane.run(:helm, *words, "--dry-run=server")
      @plane.run(:helm, *words)
      wanted, = deployment(name)
      @cluster.wait_until("#{name}: #{wanted} pods are admitted", within: 60) { deployment(name)[1] == wanted }
      # Upgrading to the same values is accepted, too, because no immutable field differs.
      @plane.run(:helm, *words)
      puts "  #{name}: installed, #{wanted} pods admitted as restricted"
      @plane.run(:helm, "uninstall", "shop", "--namespace", name)
    end

    # Makes the objects that the values name and the chart does not make.
    def prepare(name)
      @cluster.api.post("/api/v1/namespaces/#{name}/serviceaccounts", "metadata" => { "name" => "unused" })
      @cluster.api.post("/apis/scheduling.k8s.io/v1/priorityclasses", "metadata" => { "name" => "web" }, "value" => 1)
    rescue Api::Refused => e
      raise unless e.status == 409
    end

    # Returns the numbers of desired and existing pods.
    def deployment(namespace)
      found = @cluster.api.get("/apis/apps/v1/namespaces/#{namespace}/deployments").fetch("items").first
      [found.dig("spec", "replicas"), found.dig("status", "replicas").to_i, found.dig("status", "conditions").to_a]
    end

    # Turning an autoscaler on keeps the number of pods.
    def keep(file)
      @cluster.namespace("kept")
      words = ["upgrade", "--install", "shop", Chart::FOLDER, "--namespace", "kept", "--values", file, "--set", "replicas=4,control.enabled=true,control.token=#{Cluster::TOKEN}"]
      @plane.run(:helm, *words)
      @plane.run(:helm, *words, "--set", "autoscaling.kind=hpa")
      wanted, = deployment("kept")
      raise Failure, "turning the autoscaler on makes 4 pods #{wanted}" unless wanted == 4

      puts "  an autoscaler that is turned on keeps the number of pods"
    end

    # Checks that the namespace would have refused other pods.
    def refuse(file)
      @cluster.namespace("refused")
      @plane.run(:helm, "install", "shop", Chart::FOLDER, "--namespace", "refused", "--values", file, "--set", "securityContext.allowPrivilegeEscalation=true")
      message = @cluster.wait_until("pods that may gain privileges are refused", within: 60) do
        deployment("refused")[2].filter_map { |one| one["message"] if one["type"] == "ReplicaFailure" }.first
      end
      raise Failure, "pods that may gain privileges are refused for another reason: #{message}" unless message.include?("violates PodSecurity")

      puts "  pods with allowPrivilegeEscalation: true are refused"
    end
  end
end
