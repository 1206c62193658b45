# frozen_string_literal: true

require_relative "metrics_service"

module Kubernetes
  # Runs the metrics adapter (metrics/config.ru) as a process, and registers it with the API server as custom.metrics.k8s.io.
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
      env = @plane.environment.merge("FIREBRICK_TOKEN" => @token, "FIREBRICK_LIB" => ENV["FIREBRICK_LIB"] || File.join(ROOT, "worker/lib"), "RACK_ENV" => "production", "TMPDIR" => @plane.folder)
      bind = "ssl://127.0.0.1:#{@port}?cert=#{certificate['adapter.crt']}&key=#{certificate['adapter.key']}"
      @pid = Process.spawn(env, Pod::PROGRAM, "-b", bind, "-w", "1", "-t", "3", "--control", "off", "--no-http3", "--tls-ticket-secret-file", "off", "-q", File.join(__dir__, "metrics"),
                           in: File::NULL, %i[out err] => @log)
      MetricsService.new(@plane, "adapter", group: "custom.metrics.k8s.io", version: "v1beta2", port: @port).register
      self
    rescue Failure => e
      raise Failure, "#{e.message}\n#{File.read(@log)}"
    end

    def stop
      return unless @pid

      Process.kill(:TERM, @pid)
      Process.wait(@pid)
      @pid = nil
    rescue Errno::ESRCH, Errno::ECHILD
      @pid = nil
    end
  end
end
