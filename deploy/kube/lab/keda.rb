# frozen_string_literal: true

require "forwardable"
require_relative "children"
require_relative "metrics_service"

module Kubernetes
  # KEDA's operator and its metrics server as processes on this machine. The operator connects to pods' addresses, so it needs a Machine.
  class Keda
    MODULE = "github.com/kedacore/keda/v2"
    PROGRAMS = %w[operator adapter].freeze

    # Returns their paths by name; compiles missing ones.
    def self.programs(cache) = PROGRAMS.to_h { |name| [name, cache.program("keda", "#{MODULE}/cmd/#{name}", "keda-#{name}")] }

    # Returns the folder of its CustomResourceDefinitions.
    def self.definitions(cache) = File.join(cache.sources(MODULE, Schemas::CUSTOM.fetch(MODULE).first), "config/crd/bases")

    extend Forwardable
    def_delegators :@children, :failure, :stop, :report

    def initialize(plane, cache)
      @plane = plane
      @programs = self.class.programs(cache)
      @definitions = self.class.definitions(cache)
      @children = Children.new(plane.folder, { **plane.environment, "POD_NAMESPACE" => "keda", "KEDA_CLUSTER_OBJECT_NAMESPACE" => "keda", "WATCH_NAMESPACE" => "" })
    end

    def start
      @plane.run(:kubectl, "apply", "--server-side", "-f", @definitions)
      @plane.run(:kubectl, "wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
      @plane.api.post("/api/v1/namespaces", "kind" => "Namespace", "apiVersion" => "v1", "metadata" => { "name" => "keda" })
      issue
      @operator = @plane.free_port
      launch("operator", "--metrics-bind-address=0", "--health-probe-bind-address=0", "--metrics-service-bind-address=127.0.0.1:#{@operator}", "--cert-dir=#{folder}")
      # The metrics server connects to the operator when it starts.
      @plane.wait_for("KEDA's operator") do
        @children.check
        TCPSocket.open("127.0.0.1", @operator, &:close)
      end
      start_server
      self
    rescue Failure => e
      raise Failure, "#{e.message}\n#{report}"
    end

    private

    def folder = File.join(@plane.folder, "keda")

    def launch(name, *flags) = @children.launch("keda-#{name}", @programs.fetch(name), *flags)

    # Issues certificates with which both authenticate to each other.
    def issue
      @plane.certificates.issue("keda", usage: "serverAuth,clientAuth")
      FileUtils.mkdir_p(folder)
      { "keda.crt" => "tls.crt", "keda.key" => "tls.key", "ca.crt" => "ca.crt" }.each { |from, to| FileUtils.cp(@plane.certificates.path(from), File.join(folder, to)) }
    end

    def start_server
      port = @plane.free_port
      launch("adapter", "--secure-port=#{port}", "--bind-address=127.0.0.1", "--port=#{@plane.free_port}", "--cert-dir=#{folder}", "--client-ca-file=#{folder}/ca.crt",
             "--tls-cert-file=#{folder}/tls.crt", "--tls-private-key-file=#{folder}/tls.key", "--metrics-service-address=127.0.0.1:#{@operator}",
             *%w[authentication authorization lister].map { |what| "--#{what}-kubeconfig=#{@plane.kubeconfig}" })
      MetricsService.new(@plane, "keda", group: "external.metrics.k8s.io", version: "v1beta1", port: port).register
    end
  end
end
