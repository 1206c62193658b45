# frozen_string_literal: true

# The part of the API custom.metrics.k8s.io that an autoscaler uses: one metric of pods, read from the pods themselves. An app on Firebrick with
# one worker, because it keeps the readings in memory.
#
# KUBE_ADDRESS, KUBE_TOKEN, KUBE_CA   the API server
# FIREBRICK_TOKEN                     of the pods' control ports

require "json"
require "time"
require "uri"
require_relative "../api"
require_relative "../saturation"

api = Kubernetes::Api.new(ENV.fetch("KUBE_ADDRESS"), token: ENV.fetch("KUBE_TOKEN"), authority: ENV.fetch("KUBE_CA"))
saturation = Kubernetes::Saturation.new(api, ENV.fetch("FIREBRICK_TOKEN"))
group = "custom.metrics.k8s.io"
version = "#{group}/v1beta2"
metric = Kubernetes::Saturation::METRIC
resources = { kind: "APIResourceList", apiVersion: "v1", groupVersion: version,
              resources: [{ name: "pods/#{metric}", singularName: "", namespaced: true, kind: "MetricValueList", verbs: ["get"] }] }
one = { groupVersion: version, version: "v1beta2" }
groups = { kind: "APIGroup", apiVersion: "v1", name: group, versions: [one], preferredVersion: one }
asked = %r{\A/apis/#{version}/namespaces/([^/]+)/pods/(?:\*|%2A)/#{metric}\z}

values = lambda do |namespace, query|
  selector = URI.decode_www_form(query).assoc("labelSelector").to_a[1].to_s
  items = saturation.of(namespace, URI.encode_www_form_component(selector)).map do |name, value|
    { describedObject: { kind: "Pod", namespace: namespace, name: name, apiVersion: "v1" }, metric: { name: metric },
      timestamp: Time.now.utc.iso8601, value: "#{(value * 1000).round}m" }
  end
  { kind: "MetricValueList", apiVersion: version, metadata: {}, items: items }
end

run(lambda do |env|
  path = env["PATH_INFO"]
  body = case path
         when "/apis" then { kind: "APIGroupList", apiVersion: "v1", groups: [groups] }
         when "/apis/#{group}" then groups
         when "/apis/#{version}" then resources
         when asked then values.call(path[asked, 1], env["QUERY_STRING"])
         end
  next [404, { "content-type" => "text/plain" }, ["not found\n"]] unless body

  [200, { "content-type" => "application/json" }, [JSON.generate(body)]]
end)
