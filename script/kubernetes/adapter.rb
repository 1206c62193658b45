# frozen_string_literal: true

require_relative "plane"

module Kubernetes
  # The metrics adapter (metrics/config.ru) as a process, and known to the API server as custom.metrics.k8s.io.
  class Adapter
    def initialize(plane, token)
      @plane = plane
      @token = token
      @log = File.join(plane.folder, "adapter.log")
    end

    def start
      @port = @plane.free_port
      @plane.certificates.issue("adapter", usage: "serverAuth")
      certificate = @plane.certificates.method(:path)
      env = @plane.environment.merge("FIREBRICK_TOKEN" => @token, "FIREBRICK_LIB" => ENV["FIREBRICK_LIB"] || File.join(ROOT, "lib"), "RACK_ENV" => "production", "TMPDIR" => @plane.folder)
      bind = "ssl://127.0.0.1:#{@port}?cert=#{certificate['adapter.crt']}&key=#{certificate['adapter.key']}"
      @pid = Process.spawn(env, Pod::PROGRAM, "-b", bind, "-w", "1", "-t", "3", "--control", "off", "--no-http3", "--tls-ticket-secret-file", "off", "-q", File.join(__dir__, "metrics"),
                           in: File::NULL, %i[out err] => @log)
      register
      self
    end

    def stop
      return unless @pid

      Process.kill(:TERM, @pid)
      Process.wait(@pid)
      @pid = nil
    rescue Errno::ESRCH, Errno::ECHILD
      @pid = nil
    end

    private

    # The aggregator goes to a Service; one that is a name is not looked up in the cluster.
    def register
      service = { "namespace" => "kube-system", "name" => "adapter" }
      @plane.api.post("/api/v1/namespaces/kube-system/services", "kind" => "Service", "apiVersion" => "v1", "metadata" => service,
                                                                 "spec" => { "type" => "ExternalName", "externalName" => "localhost", "ports" => [{ "port" => @port }] })
      spec = { "group" => "custom.metrics.k8s.io", "version" => "v1beta2", "groupPriorityMinimum" => 100, "versionPriority" => 100,
               "service" => service.merge("port" => @port), "insecureSkipTLSVerify" => true }
      @plane.api.post("/apis/apiregistration.k8s.io/v1/apiservices", "kind" => "APIService", "apiVersion" => "apiregistration.k8s.io/v1",
                                                                     "metadata" => { "name" => "v1beta2.custom.metrics.k8s.io" }, "spec" => spec)
      deadline = Time.now + 60
      until available?
        raise Failure, "the metrics adapter is not available after 60 s: #{@status}\n#{File.read(@log)}" if Time.now > deadline

        sleep 0.5
      end
    end

    def available?
      @status = @plane.api.get("/apis/apiregistration.k8s.io/v1/apiservices/v1beta2.custom.metrics.k8s.io")["status"]
      @status.to_h["conditions"].to_a.any? { |one| one["type"] == "Available" && one["status"] == "True" }
    end
  end
end
