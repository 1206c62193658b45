# frozen_string_literal: true

require_relative "cluster"

module Kubernetes
  # Rolling updates under load, behind a service that learns of each change up to five seconds late: no request may fail. Two pods, so that each
  # restart of the deployment replaces two.
  class Rollouts
    CLIENTS = 20
    PODS = 2
    # The time limit of a restart, in seconds.
    WITHIN = 90

    # A client that sends requests at its own pace over kept connections, which the server may end between two of them.
    class Visitor
      REQUESTS = 50

      attr_reader :completed, :wrong

      def initialize(service, every)
        @service = service
        @every = every
        @completed = 0
        @wrong = Hash.new(0)
      end

      def start
        @due = now
        @thread = Thread.new { connection until @stopped }
        self
      end

      def stop
        @stopped = true
        @thread.join
      end

      private

      def connection
        socket = @service.connect
        REQUESTS.times do
          # Closed between two requests, which is not a failure.
          break if @stopped || socket.wait_readable(0)

          closes = exchange(socket)
          pause
          break if closes
        end
      rescue StandardError => e
        @wrong["#{e.class}: #{e.message}"] += 1
        sleep 0.1
      ensure
        socket&.close
      end

      # Waits until the next request is due; catches up after a slow one.
      def pause
        @due += Random.rand(@every * 2)
        left = @due - now
        sleep left if left.positive?
      end

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

      # Returns whether the server announced that it closes the connection.
      def exchange(socket)
        socket.write("GET / HTTP/1.1\r\nHost: shop\r\n\r\n")
        head = socket.gets("\r\n\r\n").to_s
        raise "the response is #{head.lines.first.inspect}" unless head.start_with?("HTTP/1.1 200 ")

        body = socket.read(Integer(head[/^content-length: (\d+)/i, 1]))
        raise "the body is #{body.inspect}" unless body == "Hello"

        @completed += 1
        head.match?(/^connection: close/i)
      end
    end

    # lame_duck: seconds for which pods keep accepting; by default the chart's
    def initialize(cluster, rounds: 50, rate: 500, lame_duck: nil)
      @cluster = cluster
      @lame_duck = lame_duck
      @restarts = (rounds / PODS.to_f).ceil
      @rate = rate
    end

    def run
      values = @cluster.values(seconds: 0.002, threads: 5, "replicas" => PODS)
      values["server"]["lameDuckSeconds"] = @lame_duck if @lame_duck
      @cluster.install(values)
      @cluster.wait_until("#{PODS} pods are ready", within: 90) { @cluster.replicas == [PODS, PODS] && @cluster.pods.size == PODS }
      @service = LateService.new(@cluster.api, Cluster::NAMESPACE, Cluster::NAME, reach: @cluster.method(:reach)).start
      visitors = Array.new(CLIENTS) { Visitor.new(@service, CLIENTS / @rate.to_f).start }
      began = @cluster.now
      replaced = Array.new(@restarts) { |number| restart(number) }.sum
      # Waits until pods being deleted are gone.
      sleep LateService::LATE + 2
      seconds = @cluster.now - began
      visitors.each(&:stop)
      judge(visitors, replaced, seconds)
    ensure
      visitors&.each(&:stop)
      @service&.stop
    end

    private

    # Does the same as `kubectl rollout restart`. Returns how many pods were replaced.
    def restart(number)
      before = uids
      change = { "metadata" => { "annotations" => { "kubectl.kubernetes.io/restartedAt" => "restart #{number}" } } }
      @cluster.api.patch("/apis/apps/v1/namespaces/#{Cluster::NAMESPACE}/deployments/#{Cluster::NAME}", "spec" => { "template" => change })
      @cluster.wait_until("restart #{number + 1} of #{@restarts}", within: WITHIN) do
        @cluster.check(@service)
        (uids & before).empty? && @cluster.replicas == [PODS, PODS]
      end
      before.size
    end

    def uids = @cluster.pods.map { |pod| pod.dig("metadata", "uid") }

    def judge(visitors, replaced, seconds)
      wrong = visitors.map(&:wrong).reduce { |all, one| all.merge(one) { |_, a, b| a + b } }
      completed = visitors.sum(&:completed)
      puts format("  %<replaced>d pods replaced in %<seconds>.0f s, %<completed>d requests (%<rate>.0f/s), %<failed>d failed",
                  replaced: replaced, seconds: seconds, completed: completed, rate: completed / seconds, failed: wrong.values.sum)
      raise Failure, "requests failed:\n#{wrong.map { |what, count| "  #{count} x #{what}" }.join("\n")}" if wrong.any?
      raise Failure, "only #{(completed / seconds).round} requests a second were sent, #{@rate} were wanted: the machine is too busy" if completed / seconds < @rate * 0.95
    end
  end
end
