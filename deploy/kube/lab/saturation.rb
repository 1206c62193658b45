# frozen_string_literal: true

require "net/http"
require_relative "pod"

module Kubernetes
  # `firebrick_saturation` of pods, read from the control port of each ready pod when the autoscaler asks.
  class Saturation
    METRIC = "firebrick_saturation"

    def initialize(api, token, port: 9293)
      @api = api
      @token = token
      @port = port
    end

    # Returns name and value of each selected pod.
    def of(namespace, selector)
      ready(namespace, selector).filter_map { |name, address| (value = scrape(address)) && [name, value] }
    end

    private

    # Returns name and address of ready pods.
    def ready(namespace, selector)
      pods = @api.get("/api/v1/namespaces/#{namespace}/pods?labelSelector=#{selector}").fetch("items")
      pods.select { |pod| Pod.serves?(pod) }.map { |pod| [pod.dig("metadata", "name"), pod.dig("status", "podIP")] }
    end

    def scrape(address)
      Net::HTTP.start(Pod.loopback(address), @port, open_timeout: 2, read_timeout: 2) do |http|
        response = http.get("/metrics", "Authorization" => "Bearer #{@token}")
        raise Failure, "/metrics of #{address}: #{response.code} #{response.body}" unless response.is_a?(Net::HTTPSuccess)

        Float(response.body[/^#{METRIC} (\S+)$/, 1])
      end
    rescue SystemCallError, IOError, Timeout::Error
      nil # the pod has just ended
    end
  end
end
