# frozen_string_literal: true

require_relative "cluster"

module Kubernetes
  # The chart on kwok's twelve nodes in three zones: pods are spread over zones and nodes, also after they have been replaced; a
  # rolling update removes no pod before another one is ready; draining a zone removes one at a time; the pods of a lost zone are soon replaced
  # elsewhere.
  class Zones
    ZONES = %w[east north west].freeze
    NODES = 4
    PODS = 24
    # The number of pods after the chart has been scaled up, and the number replaced at a time.
    MANY = 200
    SURGE = 20
    # Seconds; Kubernetes itself waits for a minute before it removes pods whose node is gone.
    WITHIN = 240
    # Seconds between two counts of serving pods.
    EVERY = 0.1

    def initialize(cluster, kwok)
      @cluster = cluster
      @kwok = kwok
    end

    def run
      ZONES.each { |zone| @kwok.add(nodes(zone), zone) }
      install(PODS)
      spread("installed", ZONES)
      replace("replaced", ZONES)
      drain(ZONES[0])
      lose(ZONES[1])
      grow
    end

    private

    def nodes(zone) = Array.new(NODES) { |number| "#{zone}-#{number}" }

    def install(pods, surge: 1)
      strategy = { "type" => "RollingUpdate", "rollingUpdate" => { "maxSurge" => surge, "maxUnavailable" => 0 } }
      @cluster.install(@cluster.values(seconds: 0, threads: 1, "replicas" => pods, "strategy" => strategy))
      settle(pods)
    end

    # Waits until that many pods serve, and no others are left.
    def settle(pods)
      @cluster.wait_until("#{pods} pods are ready", within: WITHIN) do
        found = @cluster.all_pods
        found.size == pods && found.all? { |pod| Pod.serves?(pod) }
      end
    end

    # Returns the smallest number of serving pods while the block ran.
    def least_serving
      counts = []
      done = false
      counting = Thread.new do
        Thread.current.report_on_exception = false
        until done
          counts << @cluster.all_pods.count { |pod| Pod.serves?(pod) }
          sleep EVERY
        end
      end
      yield
      done = true
      counting.join
      counts.min
    ensure
      done = true
    end

    # Replaces all pods by those of a new template. None may be missing before another one is ready.
    def replace(what, zones, pods: PODS)
      least = least_serving do
        @cluster.plane.run(:kubectl, "-n", Cluster::NAMESPACE, "rollout", "restart", "deployment", Cluster::NAME)
        @cluster.plane.run(:kubectl, "-n", Cluster::NAMESPACE, "rollout", "status", "deployment", Cluster::NAME, "--timeout=#{WITHIN}s")
        settle(pods)
      end
      raise Failure, "#{what}: only #{least} of #{pods} pods served at a time" if least < pods

      spread("#{what}, never fewer ready", zones)
    end

    # Drains a zone, as an administrator does for maintenance.
    def drain(zone)
      least = least_serving do
        @cluster.plane.run(:kubectl, "drain", "--selector=topology.kubernetes.io/zone=#{zone}", "--delete-emptydir-data", "--timeout=#{WITHIN}s")
        settle(PODS)
      end
      raise Failure, "#{zone} was drained: only #{least} of #{PODS} pods served at a time, the chart's budget allows one to be away" if least < PODS - 1

      spread("#{zone} drained, #{least} at the least", ZONES - [zone])
      @cluster.plane.run(:kubectl, "uncordon", "--selector=topology.kubernetes.io/zone=#{zone}")
      replace("#{zone} back and all replaced", ZONES)
    end

    # Removes the nodes, as when a cloud provider has ended the machines.
    def lose(zone)
      began = @cluster.now
      @cluster.plane.run(:kubectl, "delete", "nodes", *nodes(zone), "--wait=false")
      @cluster.wait_until("no pod is on a node of #{zone}", within: WITHIN) { @cluster.all_pods.none? { |pod| nodes(zone).include?(pod.dig("spec", "nodeName")) } }
      settle(PODS)
      spread(format("%<zone>s lost, all elsewhere after %<seconds>.0f s", zone: zone, seconds: @cluster.now - began), ZONES - [zone])
      @kwok.add(nodes(zone), zone)
    end

    def grow
      install(MANY, surge: SURGE)
      replace("#{MANY} pods replaced, #{SURGE} at a time", ZONES, pods: MANY)
    end

    # Checks that zones, and nodes, have the same number of pods, plus or minus one.
    def spread(what, zones)
      places = @cluster.pods.map { |pod| pod.dig("spec", "nodeName") }
      by_node = zones.flat_map { |zone| nodes(zone) }.to_h { |node| [node, places.count(node)] }
      by_zone = zones.to_h { |zone| [zone, by_node.slice(*nodes(zone)).values.sum] }
      puts "  #{what}: #{by_zone.map { |zone, count| "#{count} in #{zone}" }.join(', ')}, #{by_node.values.minmax.uniq.join(' to ')} on a node"
      uneven = [by_zone, by_node].find { |counts| counts.values.max - counts.values.min > 1 } or return
      raise Failure, "#{what}: pods are not spread: #{uneven}"
    end
  end
end
