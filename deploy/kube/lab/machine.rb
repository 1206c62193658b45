# frozen_string_literal: true

require "forwardable"
require "json"
require_relative "children"
require_relative "images"
require_relative "plane"

module Kubernetes
  # A node like real ones: a kubelet, containerd, runc, and pods with their own network, which a bridge connects to this
  # process; and CoreDNS, with which pods resolve names. It needs Isolation.
  class Machine
    NAME = "machine-0"
    # The bridge's address is the node's, because a kubelet accepts no loopback address.
    ADDRESS = "10.88.0.1"
    NETWORK = "10.88.0.0/16"
    WITHOUT = "-tags=no_btrfs,no_devmapper,no_zfs,no_aufs"
    CONTAINERD = "github.com/containerd/containerd/v2/cmd"
    PLUGINS = "github.com/containernetworking/plugins/plugins"
    # Module, package and flags by name.
    PROGRAMS = {
      "kubelet" => ["", "#{Plane::TOOLS}/kubelet"],
      "coredns" => ["dns", "github.com/coredns/coredns"],
      **%w[containerd containerd-shim-runc-v2 ctr].to_h { |name| [name, ["containers", "#{CONTAINERD}/#{name}", WITHOUT]] },
      **%w[main/bridge main/loopback ipam/host-local].to_h { |path| [File.basename(path), ["containers", "#{PLUGINS}/#{path}"]] }
    }.freeze

    # Returns their paths by name; compiles missing ones.
    def self.programs(cache) = Plane.programs(cache, PROGRAMS)

    extend Forwardable
    def_delegators :@children, :failure, :stop, :report

    def initialize(plane, cache, images:)
      @plane = plane
      @programs = self.class.programs(cache)
      @images = images
      @folder = File.join(plane.folder, NAME)
      # Programs look each other up by name, so a folder has links with these names.
      @children = Children.new(@folder, { "PATH" => "#{path('bin')}:#{ENV.fetch('PATH')}" })
    end

    def start
      %w[bin cni logs plugins].each { |name| FileUtils.mkdir_p(path(name)) }
      @programs.each { |name, program| File.symlink(program, path("bin/#{name}")) }
      connect
      start_containerd
      start_names
      start_kubelet
      self
    end

    private

    def path(name) = File.join(@folder, name)

    def socket = path("containerd.sock")

    def launch(name, *flags) = @children.launch(name, @programs.fetch(name), *flags)

    def run(*words)
      out, status = Open3.capture2e(*words)
      raise Failure, "#{words.join(' ')} failed:\n#{out}" unless status.success?

      out
    end

    # Sets up the network of the pods.
    def connect
      run("ip", "link", "add", "web0", "type", "bridge")
      run("ip", "address", "add", "#{ADDRESS}/16", "dev", "web0")
      run("ip", "link", "set", "web0", "up")
      addresses = { "type" => "host-local", "ranges" => [[{ "subnet" => NETWORK }]], "routes" => [{ "dst" => "0.0.0.0/0" }], "dataDir" => path("addresses") }
      File.write(path("cni/web.conflist"), JSON.generate("cniVersion" => "1.0.0", "name" => "web", "plugins" => [
                                                           { "type" => "bridge", "bridge" => "web0", "isGateway" => true, "hairpinMode" => true, "ipam" => addresses }
                                                         ]))
    end

    def start_containerd
      File.write(path("containerd.toml"), <<~TOML)
        version = 3
        root = "#{path('containerd')}"
        state = "#{path('state')}"
        [grpc]
          address = "#{socket}"
        [plugins."io.containerd.cri.v1.images".pinned_images]
          sandbox = "#{Images::PAUSE}"
        [plugins."io.containerd.cri.v1.runtime"]
          netns_mounts_under_state_dir = true
          # Virtual machines may not let root make a process less likely to be killed.
          restrict_oom_score_adj = true
        [plugins."io.containerd.cri.v1.runtime".cni]
          bin_dirs = ["#{path('bin')}"]
          conf_dir = "#{path('cni')}"
        [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
          runtime_type = "io.containerd.runc.v2"
      TOML
      launch("containerd", "--config", path("containerd.toml"), "--log-level", "warn")
      @plane.wait_for("containerd") do
        @children.check
        UNIXSocket.open(socket, &:close)
      end
      import
    end

    def import
      %w[pause app].each { |name| run(@programs.fetch("ctr"), "--address", socket, "--namespace", "k8s.io", "images", "import", Images.path(@images, name)) }
    end

    def start_names
      File.write(path("Corefile"), <<~TEXT)
        cluster.local:53 {
          bind #{ADDRESS}
          kubernetes {
            kubeconfig #{@plane.kubeconfig} one
          }
          errors
        }
      TEXT
      launch("coredns", "-conf", path("Corefile"))
    end

    def start_kubelet
      config = {
        "kind" => "KubeletConfiguration", "apiVersion" => "kubelet.config.k8s.io/v1beta1", "containerRuntimeEndpoint" => "unix://#{socket}",
        "address" => ADDRESS, "healthzPort" => 0, "authentication" => { "anonymous" => { "enabled" => true }, "webhook" => { "enabled" => false } },
        "authorization" => { "mode" => "AlwaysAllow" }, "clusterDNS" => [ADDRESS], "clusterDomain" => "cluster.local", "failSwapOn" => false, "podLogsDir" => path("logs"),
        "volumePluginDir" => path("plugins"), "cgroupDriver" => "cgroupfs",
        # Kubernetes drops cgroup version 1; Firebrick's machines have either.
        "failCgroupV1" => false,
        # The free space of the machine's disk does not matter.
        "evictionHard" => %w[memory.available nodefs.available nodefs.inodesFree imagefs.available imagefs.inodesFree].to_h { |signal| [signal, "0%"] },
        "imageGCHighThresholdPercent" => 100
      }
      File.write(path("kubelet.json"), JSON.generate(config))
      launch("kubelet", "--config", path("kubelet.json"), "--kubeconfig", @plane.kubeconfig, "--root-dir", path("kubelet"), "--cert-dir", path("certificates"),
             "--node-ip", ADDRESS, "--hostname-override", NAME)
    end
  end
end
