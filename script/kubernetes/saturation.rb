# frozen_string_literal: true

require "net/http"
require_relative "pod"

module Kubernetes
  # `firebrick_saturation` of pods, averaged over the last seconds as `avg_over_time` does: what a Prometheus and its adapter know of them. It is
  # read from the control port of each pod that is ready.
  class Saturation
    EVERY = 1.0
    # Seconds. The autoscaler asks every 15 s: a window that is longer would still have what was before its last decision.
    WINDOW = 15.0
    METRIC = "firebrick_saturation"

    def initialize(api, token, port: 9293)
      @api = api
      @token = token
      @port = port
      @seen = {}
      @lock = Mutex.new
    end

    # Name and average of each pod of a selection, after a first reading. From then on it is read all the time.
    def of(namespace, selector)
      path = "/api/v1/namespaces/#{namespace}/pods?labelSelector=#{selector}"
      @lock.synchronize do
        @paths ||= []
        @paths << path unless @paths.include?(path)
        @reader ||= Thread.new { run }
        read(path)
        pods(path).filter_map { |name, _| (values = @seen[name]) && [name, values.sum(&:last) / values.size] }
      end
    end

    private

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    def run
      loop do
        sleep EVERY
        @lock.synchronize { @paths.each { |path| read(path) } }
      rescue StandardError => e
        warn "metrics: #{e.class}: #{e.message}"
      end
    end

    # Address by name of pods that are ready and stay.
    def pods(path)
      ready = @api.get(path).fetch("items").reject { |pod| pod.dig("metadata", "deletionTimestamp") }.select do |pod|
        pod.dig("status", "conditions").to_a.any? { |one| one["type"] == "Ready" && one["status"] == "True" }
      end
      ready.to_h { |pod| [pod.dig("metadata", "name"), pod.dig("status", "podIP")] }
    end

    def read(path)
      listed = pods(path)
      @seen.keep_if { |name, _| listed.key?(name) } if @paths.one?
      listed.each do |name, address|
        value = scrape(address) or next
        values = (@seen[name] ||= [])
        values << [now, value]
        values.shift while values.first.first < now - WINDOW
      end
    end

    def scrape(address)
      Net::HTTP.start(Pod.loopback(address), @port, open_timeout: 2, read_timeout: 2) do |http|
        response = http.get("/metrics", "Authorization" => "Bearer #{@token}")
        raise Failure, "/metrics of #{address}: #{response.code} #{response.body}" unless response.is_a?(Net::HTTPSuccess)

        Float(response.body[/^#{METRIC} (\S+)$/, 1])
      end
    rescue SystemCallError, IOError, Timeout::Error
      nil # It has just ended.
    end
  end
end
