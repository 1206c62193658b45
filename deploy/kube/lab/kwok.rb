# frozen_string_literal: true

require "forwardable"
require_relative "children"
require_relative "node"
require_relative "plane"

module Kubernetes
  # kwok instead of kubelets: nodes without machines, whose pods start and end after a second or two and serve nothing. For tests that need
  # many nodes: the placement of pods, and the number that is missing at a time.
  class Kwok
    MODULE = "sigs.k8s.io/kwok"
    PROGRAMS = { kwok: ["kwok", "#{MODULE}/cmd/kwok"] }.freeze
    # The life cycle of nodes and pods, from kwok's own examples, with delays in milliseconds, from and to.
    STAGES = { "node/fast/node-initialize" => nil, "pod/fast/pod-ready" => [1000, 2000], "pod/fast/pod-delete" => [1000, 2000] }.freeze
    # Seconds until a node of the API server is ready.
    READY_WITHIN = 60

    # Returns its path by name; compiles it if it is missing.
    def self.programs(cache) = Plane.programs(cache, PROGRAMS)

    extend Forwardable
    def_delegators :@children, :failure, :stop

    def initialize(plane, cache)
      @plane = plane
      @program = self.class.programs(cache).fetch(:kwok)
      @sources = cache.sources(MODULE, Cache.version(MODULE, "kwok"))
      @children = Children.new(plane.folder)
    end

    def start
      stages = File.join(@plane.folder, "stages.yaml")
      File.write(stages, STAGES.map { |name, delay| YAML.dump(stage(name, delay)) }.join)
      @children.launch("kwok", @program, "--kubeconfig=#{@plane.kubeconfig}", "--config=#{stages}", "--manage-all-nodes=true", "--node-lease-duration-seconds=40", "--cidr=10.64.0.1/16", "--node-ip=10.63.0.1")
      self
    end

    # Adds nodes to a zone, and waits until pods can be placed there.
    def add(names, zone)
      names.each { |name| @plane.api.post("/api/v1/nodes", Node.object(name, zone)) }
      @plane.run(:kubectl, "wait", "--for=condition=Ready", "--timeout=#{READY_WITHIN}s", *names.map { |name| "node/#{name}" })
    rescue Failure => e
      raise Failure, "#{e.message}\n#{@children.report}"
    end

    private

    def stage(name, delay)
      YAML.safe_load_file(File.join(@sources, "kustomize/stage/#{name}.yaml")).tap do |stage|
        stage["spec"]["delay"] = { "durationMilliseconds" => delay[0], "jitterDurationMilliseconds" => delay[1] } if delay
      end
    end
  end
end
