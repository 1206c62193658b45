# frozen_string_literal: true

require_relative "plane"

module Kubernetes
  # Registers a group of metrics, served by a process on this machine, with the API server. The Service is only a name and is not looked up in the
  # cluster.
  class MetricsService
    WITHIN = 60

    # group, version: such as custom.metrics.k8s.io and v1beta2.
    def initialize(plane, name, group:, version:, port:)
      @api = plane.api
      @name = "#{version}.#{group}"
      @service = { "namespace" => "kube-system", "name" => name }
      @port = port
      @spec = { "group" => group, "version" => version, "groupPriorityMinimum" => 100, "versionPriority" => 100,
                "service" => @service.merge("port" => port), "insecureSkipTLSVerify" => true }
    end

    # Registers it, and waits until it is available.
    def register
      @api.post("/api/v1/namespaces/kube-system/services", "kind" => "Service", "apiVersion" => "v1", "metadata" => @service,
                                                           "spec" => { "type" => "ExternalName", "externalName" => "localhost", "ports" => [{ "port" => @port }] })
      @api.post("/apis/apiregistration.k8s.io/v1/apiservices", "kind" => "APIService", "apiVersion" => "apiregistration.k8s.io/v1",
                                                               "metadata" => { "name" => @name }, "spec" => @spec)
      deadline = Time.now + WITHIN
      until available?
        raise Failure, "#{@name} is not available after #{WITHIN} s: #{@status}" if Time.now > deadline

        sleep 0.5
      end
    end

    private

    def available?
      @status = @api.get("/apis/apiregistration.k8s.io/v1/apiservices/#{@name}")["status"]
      @status.to_h["conditions"].to_a.any? { |one| one["type"] == "Available" && one["status"] == "True" }
    end
  end
end
