# frozen_string_literal: true

require "yaml"
require_relative "cache"

module Kubernetes
  # JSON schemas for `kubeconform -strict`, made from the Go modules of Kubernetes (its OpenAPI document) and of the projects of the chart's
  # optional objects (their CustomResourceDefinitions). An object may have no property that its schema does not name.
  class Schemas
    # Modules with CustomResourceDefinitions: version, and files.
    CUSTOM = {
      "github.com/kedacore/keda/v2" => ["v2.21.0", "config/crd/bases/keda.sh_{scaledobjects,triggerauthentications}.yaml"],
      "sigs.k8s.io/gateway-api" => ["v1.6.3", "config/crd/standard/gateway.networking.k8s.io_httproutes.yaml"],
      "github.com/prometheus-operator/prometheus-operator" => ["v0.85.0", "example/prometheus-operator-crd/monitoring.coreos.com_{podmonitors,servicemonitors}.yaml"]
    }.freeze
    # In the OpenAPI document their types are plain strings, but a number is allowed, too.
    LOOSE = {
      "io.k8s.apimachinery.pkg.util.intstr.IntOrString" => { "type" => %w[string integer] },
      "io.k8s.apimachinery.pkg.api.resource.Quantity" => { "type" => %w[string number] }
    }.freeze
    # To be changed when this file makes different schemas from the same sources.
    EDITION = 1

    def initialize(cache)
      @cache = cache
    end

    # Returns the version of Kubernetes for the tests, such as v1.36.3: that of the control plane.
    def self.version = Cache.version("k8s.io/kubernetes", "")

    # Returns the files with CustomResourceDefinitions.
    def custom
      @custom ||= CUSTOM.flat_map do |name, (version, files)|
        dir = @cache.sources(name, version)
        Dir[File.join(dir, files)].tap { |found| raise Failure, "#{name} #{version} has no #{files}" if found.empty? }.sort
      end
    end

    # Returns the folder of schemas, GROUP/kind-version.json. Makes it if it is missing.
    def folder
      key = Digest::SHA256.hexdigest([EDITION, self.class.version, CUSTOM].inspect)[0, 12]
      path = File.join(@cache.folder, "schemas-#{key}")
      return path if File.directory?(path)

      partial = "#{path}.#{Process.pid}"
      FileUtils.mkdir_p(partial)
      write_own(partial)
      custom.each { |file| YAML.load_stream(File.read(file)) { |document| write_custom(partial, document) } }
      File.rename(partial, path)
      path
    ensure
      FileUtils.rm_rf(partial) if partial
    end

    private

    def write_own(folder)
      file = File.join(@cache.sources("k8s.io/kubernetes", self.class.version), "api/openapi-spec/swagger.json")
      definitions = JSON.parse(File.read(file)).fetch("definitions")
      File.write(File.join(folder, "definitions.json"), JSON.generate("definitions" => definitions.to_h { |name, one| [name, LOOSE[name] || strict(one)] }))
      definitions.each do |name, one|
        one["x-kubernetes-group-version-kind"]&.each do |kind|
          put(folder, *kind.values_at("group", "version", "kind"), "$ref" => "../definitions.json#/definitions/#{name}")
        end
      end
    end

    def write_custom(folder, document)
      return unless document && document["kind"] == "CustomResourceDefinition"

      spec = document.fetch("spec")
      spec.fetch("versions").each do |version|
        schema = strict(version.dig("schema", "openAPIV3Schema"))
        # The document defines it only as an object.
        schema["properties"]["metadata"] = { "$ref" => "../definitions.json#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta" }
        put(folder, spec["group"], version["name"], spec.dig("names", "kind"), schema)
      end
    end

    # For objects without a group, kubeconform uses the version as the group.
    def put(folder, group, version, kind, schema)
      dir = File.join(folder, group.empty? ? version : group)
      FileUtils.mkdir_p(dir)
      File.write(File.join(dir, "#{kind.downcase}-#{version}.json"), JSON.generate(schema))
    end

    # Returns the same schema, but refusing properties that it does not name.
    def strict(schema)
      return schema.map { |one| strict(one) } if schema.is_a?(Array)
      return schema unless schema.is_a?(Hash)

      result = schema.except("description", "format", "default", "x-kubernetes-validations").to_h { |key, value| [key, key == "properties" ? value.transform_values { |one| strict(one) } : strict(value)] }
      return result.except("type").merge("type" => %w[string integer]) if schema["x-kubernetes-int-or-string"]

      open = schema.key?("additionalProperties") || schema["x-kubernetes-preserve-unknown-fields"]
      result["additionalProperties"] = false if schema["type"] == "object" && schema["properties"].is_a?(Hash) && !open
      result
    end
  end
end
