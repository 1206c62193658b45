# frozen_string_literal: true

require "base64"
require_relative "pod"

module Kubernetes
  # A node of the cluster, in a thread. It acts as a kubelet for the chart's pods, with a real server per pod (Pod): starts them, runs
  # their probes, reports to the API server, and sends TERM and waits when a pod is deleted. It does not support containers, images, volumes and
  # limits.
  class Node
    EVERY = 0.25
    LEASE = 10

    # Returns a node object for the API server.
    def self.object(name, zone)
      labels = { "kubernetes.io/hostname" => name, "topology.kubernetes.io/zone" => zone, "kubernetes.io/os" => "linux" }
      { "kind" => "Node", "apiVersion" => "v1", "metadata" => { "name" => name, "labels" => labels } }
    end

    # The first failure; the run fails.
    attr_reader :failure

    def initialize(api, name, app:, number: 0)
      @api = api
      @name = name
      @app = app
      @number = number
      @pods = {}
      @addresses = 0
      @heard = 0
    end

    def start
      register
      @thread = Thread.new { run }
      self
    end

    # Ends the node and its pods.
    def stop
      @stopping = true
      @thread&.join
      @pods.each_value(&:tell)
      deadline = now + 15
      sleep 0.05 while @pods.values.any?(&:running?) && now < deadline
      @pods.each_value { |pod| pod.kill if pod.running? }
      @pods.each_value(&:remove)
    end

    private

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    def register
      @api.post("/api/v1/nodes", self.class.object(@name, "zone-#{@number}"))
      beat
    end

    # Without this heartbeat the node counts as lost.
    def beat
      @heard = now
      moment = Time.now.utc.strftime("%FT%TZ")
      ready = { "type" => "Ready", "status" => "True", "reason" => "Here", "message" => "", "lastHeartbeatTime" => moment, "lastTransitionTime" => moment }
      room = { "cpu" => "64", "memory" => "256Gi", "pods" => "200", "ephemeral-storage" => "1Ti" }
      @api.patch("/api/v1/nodes/#{@name}/status", "status" => { "conditions" => [ready], "capacity" => room, "allocatable" => room })
    end

    def run
      until @stopping
        began = now
        beat if began - @heard > LEASE
        turn
        sleep [EVERY - (now - began), 0.01].max
      end
    rescue StandardError => e
      @failure = e
    end

    def turn
      listed = @api.get("/api/v1/pods?fieldSelector=spec.nodeName=#{@name}&resourceVersion=0").fetch("items")
      listed.each { |object| look_at(object) }
      forget(listed.map { |object| object.dig("metadata", "uid") })
    end

    def look_at(object)
      pod = @pods[object.dig("metadata", "uid")]
      deleted = object.dig("metadata", "deletionTimestamp")
      return (deleted ? @api.delete_now(path(object)) : admit(object)) unless pod

      pod.tell if deleted && !pod.told?
      return ended(pod) unless pod.running?

      pod.kill if pod.overdue?
      report(pod) if pod.probe
    end

    def admit(object)
      address = "10.64.#{@number}.#{@addresses += 1}"
      pod = @pods[object.dig("metadata", "uid")] = Pod.new(object, address: address, app: @app, secrets: ->(name) { secret(object, name) })
      report(pod)
    end

    def ended(pod)
      raise Failure, "#{pod.name} has ended by itself (#{pod.status}):\n#{pod.output}" unless pod.told?
      raise Failure, "#{pod.name} did not end well (#{pod.status}):\n#{pod.output}" unless pod.status.success?

      @api.delete_now(path(pod.object))
    end

    def report(pod)
      @api.patch("#{path(pod.object)}/status", "status" => pod.to_status)
    rescue Api::Refused => e
      raise unless e.status == 404
    end

    # Removes folders of pods that the API server has forgotten.
    def forget(uids)
      (@pods.keys - uids).each do |uid|
        pod = @pods.delete(uid)
        pod.kill if pod.running?
        pod.remove
      end
    end

    def path(object) = "/api/v1/namespaces/#{object.dig('metadata', 'namespace')}/pods/#{object.dig('metadata', 'name')}"

    def secret(object, name)
      @api.get("/api/v1/namespaces/#{object.dig('metadata', 'namespace')}/secrets/#{name}").fetch("data").transform_values { |text| Base64.decode64(text) }
    end
  end
end
