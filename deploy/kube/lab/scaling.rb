# frozen_string_literal: true

require_relative "cluster"

module Kubernetes
  # Kubernetes' own autoscaler reads `firebrick_saturation` of real servers behind the pods. When the load doubles, twice as many pods must be ready
  # within a minute, and stay. When it halves, the number must return to the old one, without a failed request.
  #
  # Requests sleep for a second, so that the load uses little CPU: 20 a second are 20 at a time, for which three servers of 10 threads run at 70 %.
  class Scaling
    SECONDS = 1
    THREADS = 10
    RATE = 20
    PODS = 3
    DOUBLED_WITHIN = 60
    # The autoscaler scales down after it has wanted to for five minutes.
    HALVED_WITHIN = 420

    # The names of the chart's two kinds of autoscaler, and the part of its status with the metric.
    AUTOSCALERS = { "hpa" => [Cluster::NAME, "pods"], "keda" => ["keda-hpa-#{Cluster::NAME}", "external"] }.freeze

    # kind: the autoscaler.
    # calm: seconds for which the number of pods has to stay after it has doubled.
    # patience: seconds for which the autoscaler has to want fewer pods; by default Kubernetes' own.
    def initialize(cluster, kind: "hpa", calm: 600, patience: nil)
      @cluster = cluster
      @kind = kind
      @patience = patience
      @calm = calm
      @loads = []
    end

    def run
      prepare
      # The first pods are too few for the whole load at once.
      load("#{RATE / 2}..#{RATE}/s:60s,#{RATE}/s:1h")
      settle
      extra = double
      stay
      halve(extra)
      finish
    ensure
      @loads.each { |one| stop(one) }
      @service&.stop
    end

    private

    Load = Struct.new(:pid, :file)

    def now = @cluster.now

    def prepare
      scaling = { "kind" => @kind, "minReplicas" => 2, "maxReplicas" => 12 }
      scaling["behavior"] = { "scaleDown" => { "stabilizationWindowSeconds" => @patience } } if @patience
      @cluster.install(@cluster.values(seconds: SECONDS, threads: THREADS, "autoscaling" => scaling))
      @cluster.wait_until("the first pods are ready", within: 90) { @cluster.replicas[1] >= 2 }
      @service = LateService.new(@cluster.api, Cluster::NAMESPACE, Cluster::NAME, late: 1.0, reach: @cluster.method(:reach)).start
      @url = "http://127.0.0.1:#{@service.listen}/"
    end

    # Starts a load of that many requests, each on a new connection, as the service spreads connections.
    def load(rate)
      file = File.join(@cluster.plane.folder, "load-#{@loads.size}.json")
      pid = Process.spawn({ "FIREBRICK_LIB" => ENV["FIREBRICK_LIB"] || File.join(ROOT, "worker/lib") }, Pod::PROGRAM, "bench", @url, "--rate", rate, "--no-keep-alive", "-t", "1", "--grace", "60s",
                          "-q", "--no-progress", "--no-stages", "--expect-status", "200", "--json", file, in: File::NULL, out: File::NULL)
      (@loads << Load.new(pid, file)).last
    end

    def stop(load)
      return unless load.pid

      Process.kill(:INT, load.pid)
      Process.wait(load.pid)
      load.pid = nil
    end

    # Ends a load, and fails if a request has failed. Returns the number of requests.
    def end_load(load)
      stop(load)
      outcome = JSON.parse(File.read(load.file))
      errors = outcome.dig("outcome", "errors").except("texts", "unsent").select { |_, count| count.positive? }
      raise Failure, "requests failed: #{errors} #{outcome.dig('outcome', 'errors', 'texts')}" if errors.any?

      outcome.fetch("summary").fetch("requests")
    end

    def check = @cluster.check(@service)

    def settle
      steady = nil
      @cluster.wait_until("#{PODS} pods for #{RATE} requests/s, for 45 s", within: 520) do
        check
        steady = nil unless @cluster.replicas == [PODS, PODS]
        steady ||= now if @cluster.replicas == [PODS, PODS]
        steady && now - steady > 45
      end
      puts "  #{RATE} requests/s: #{PODS} pods, #{figures}"
    end

    def double
      began = now
      extra = load("#{RATE}/s:1h")
      @cluster.wait_until("#{PODS * 2} pods are ready after the load has doubled", within: DOUBLED_WITHIN) { @cluster.replicas[1] >= PODS * 2 }
      puts format("  the load doubles: %<pods>d pods are ready after %<seconds>.0f s", pods: @cluster.replicas[1], seconds: now - began)
      extra
    end

    def stay
      began = now
      seen = []
      while now - began < @calm
        check
        wanted, = @cluster.replicas
        seen << [wanted, format("%<wanted>d pods from %<seconds>.0f s on, %<figures>s", wanted: wanted, seconds: now - began, figures: figures)] unless seen.last&.first == wanted
        sleep 1
      end
      raise Failure, "the number of pods did not stay for #{@calm} s:\n#{seen.map(&:last).join("\n")}" if seen.map(&:first) != [PODS * 2]

      puts "  for #{@calm} s: #{PODS * 2} pods, #{figures}"
    end

    def halve(extra)
      sent = end_load(extra)
      began = now
      @cluster.wait_until("#{PODS} pods after the load has halved", within: HALVED_WITHIN) do
        check
        @cluster.replicas == [PODS, PODS]
      end
      puts format("  the load halves: %<pods>d pods after %<seconds>.0f s; %<sent>d requests of what is gone, 0 failed", pods: PODS, seconds: now - began, sent: sent)
    end

    # Also waits for the pods being deleted.
    def finish
      sleep 15
      sent = end_load(@loads.first)
      puts "  #{sent} requests of what has stayed, 0 failed"
    end

    def figures
      name, type = AUTOSCALERS.fetch(@kind)
      found = @cluster.api.get("/apis/autoscaling/v2/namespaces/#{Cluster::NAMESPACE}/horizontalpodautoscalers/#{name}")
      "firebrick_saturation #{found.dig('status', 'currentMetrics', 0, type, 'current', 'averageValue')}"
    end
  end
end
