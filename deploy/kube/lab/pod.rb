# frozen_string_literal: true

require "fileutils"
require "net/http"
require "tmpdir"
require_relative "cache"

module Kubernetes
  # A pod of the chart as a real server on this machine, with the arguments and variables of its container. Its address is 10.64.0.N, because
  # Kubernetes allows no loopback address; the server listens on 127.64.0.N.
  class Pod
    PROGRAM = ENV["FIREBRICK"] || File.join(ROOT, "target/release/firebrick")

    # Returns the address on which the server of a pod really listens.
    def self.loopback(address) = address.sub(/\A10\./, "127.")

    # Returns whether a pod of the API server gets requests: it is ready and not being deleted.
    def self.serves?(object)
      !object.dig("metadata", "deletionTimestamp") && object.dig("status", "conditions").to_a.any? { |one| one["type"] == "Ready" && one["status"] == "True" }
    end

    attr_reader :object, :address, :status

    # object: from the API server; app: the folder that it serves; secrets: the data of Secrets by name.
    def initialize(object, address:, app:, secrets:)
      @object = object
      @address = address
      @container = object.dig("spec", "containers", 0)
      @folder = Dir.mktmpdir("pod")
      @probed = Hash.new(0)
      @failed = Hash.new(0)
      @started = @ready = false
      @app = app
      @environment = environment(secrets)
      @since = Time.now.utc.strftime("%FT%TZ")
      @pid = Process.spawn(@environment, PROGRAM, *arguments, chdir: app, pgroup: true, in: File::NULL, %i[out err] => log)
    end

    def name = @object.dig("metadata", "name")

    def uid = @object.dig("metadata", "uid")

    # Returns the pod's process, or nil when it has ended.
    def running?
      return false if @status

      _, @status = Process.wait2(@pid, Process::WNOHANG)
      @status.nil?
    end

    def told? = @told

    # Sends TERM to process 1, as a kubelet does.
    def tell
      @told = now
      Process.kill(:TERM, @pid) if running?
    end

    # Returns whether the grace period is over.
    def overdue? = @told && now - @told > @object.dig("spec", "terminationGracePeriodSeconds")

    def kill
      Process.kill(:KILL, -@pid)
    rescue Errno::ESRCH
      nil
    ensure
      Process.wait(@pid) unless @status
    end

    def remove = FileUtils.rm_rf(@folder)

    def output = File.read(log)

    # Runs the probes that are due. Returns whether the pod's status has changed.
    def probe
      before = [@started, @ready]
      if @started
        @ready = holds?("readinessProbe", @ready)
        raise Failure, "#{name}: the liveness probe fails\n#{output}" unless holds?("livenessProbe", true) || told?
      else
        @started = holds?("startupProbe", false)
        @ready = holds?("readinessProbe", false) if @started
      end
      before != [@started, @ready]
    end

    # Returns the status in the API server's format.
    def to_status
      condition = ->(type, good) { { "type" => type, "status" => good ? "True" : "False", "lastTransitionTime" => Time.now.utc.strftime("%FT%TZ") } }
      { "phase" => "Running", "podIP" => address, "podIPs" => [{ "ip" => address }], "startTime" => @since,
        "containerStatuses" => [{ "name" => @container["name"], "image" => @container["image"], "imageID" => @container["image"], "restartCount" => 0,
                                  "ready" => @ready, "started" => @started, "state" => { "running" => { "startedAt" => @since } } }],
        "conditions" => [condition["PodScheduled", true], condition["Initialized", true], condition["ContainersReady", @ready], condition["Ready", @ready]] }
    end

    private

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    def log = File.join(@folder, "log")

    def loopback = self.class.loopback(address)

    def arguments = @container.fetch("args").map { |arg| arg.sub("tcp://[::]:", "tcp://#{loopback}:") }

    def environment(secrets)
      given = @container.fetch("env", []).to_h do |one|
        reference = one.dig("valueFrom", "secretKeyRef")
        [one["name"], reference ? secrets.call(reference["name"]).fetch(reference["key"]) : one["value"].to_s]
      end
      # Programs find their Ruby files relative to their own folder, except in tests of a program compiled by cargo.
      { "FIREBRICK_LIB" => ENV["FIREBRICK_LIB"] || File.join(ROOT, "worker/lib"), "KUBERNETES_SERVICE_HOST" => "10.96.0.1", **given, "TMPDIR" => @folder, "HOME" => @folder }
    end

    # Returns whether a probe succeeds. The previous result stays until the probe is due, and until it has failed often enough.
    def holds?(probe, before)
      spec = @container.fetch(probe)
      return before if now - @probed[probe] < spec["periodSeconds"]

      @probed[probe] = now
      if ask(spec.fetch("httpGet"), spec["timeoutSeconds"])
        @failed[probe] = 0
        return true
      end
      (@failed[probe] += 1) < spec["failureThreshold"] && before
    end

    def ask(get, timeout)
      port = @container["ports"].find { |one| one["name"] == get["port"] }.fetch("containerPort")
      Net::HTTP.start(loopback, port, open_timeout: timeout, read_timeout: timeout) { |http| http.get(get["path"]).is_a?(Net::HTTPSuccess) }
    rescue SystemCallError, IOError, Timeout::Error
      false
    end
  end
end
