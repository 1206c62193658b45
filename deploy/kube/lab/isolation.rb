# frozen_string_literal: true

require "rbconfig"
require_relative "cache"

module Kubernetes
  # Runs this program again in its own Linux namespaces, for a run with containers. Its network, mounts and
  # processes disappear when it ends, for whatever reason. Control groups and three kernel settings belong to the machine, so the changes of a
  # kubelet are reverted.
  module Isolation
    # The folder of the images, for the program inside. It is made outside, because a folder that is mounted on inside can only be removed
    # afterwards.
    IMAGES = "KUBE_IMAGES"
    CONTROLLERS = "/sys/fs/cgroup/*"
    # The groups that a kubelet and its runtime make in each controller.
    GROUPS = %w[kubepods k8s.io].freeze
    # Folders of the machine that a kubelet and containerd always write to. Inside they are replaced.
    FOLDERS = %w[/var/lib/kubelet /var/log /run].freeze
    # Settings that a kubelet changes for the whole machine.
    KERNEL = %w[vm/overcommit_memory kernel/panic kernel/panic_on_oops].map { |name| "/proc/sys/#{name}" }.freeze

    def self.inside? = ENV.key?(IMAGES)

    # Fails if containers cannot run here.
    def self.check
      raise Failure, "containers need root: sudo script/kube containers" unless Process.uid.zero?

      found = groups.first
      raise Failure, "#{found} is there: a kubelet runs on this machine, or a run was killed; then remove the group and those in it by rmdir" if found

      missing = %w[unshare ip runc].find { |program| ENV.fetch("PATH").split(":").none? { |folder| File.executable?(File.join(folder, program)) } }
      raise Failure, "#{missing} is missing: script/apt-install util-linux iproute2 runc" if missing
    end

    # Runs this program with the words, inside. Returns whether it succeeded.
    def self.run(*words, images:)
      missing = FOLDERS.reject { |path| Dir.exist?(path) }.each { |path| FileUtils.mkdir_p(path) }
      kernel = KERNEL.to_h { |path| [path, File.read(path)] }
      script = [*FOLDERS.map { |path| "mount -t tmpfs tmpfs #{path}" }, "ip link set lo up", "exec \"$@\""].join(" && ")
      pid = Process.spawn({ IMAGES => images, "TMPDIR" => images }, "unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
                          "sh", "-c", script, "sh", RbConfig.ruby, *words)
      Process.wait2(pid).last.success?.tap { pid = nil }
    ensure
      # A process group may be sent several signals.
      handlers = %w[INT TERM].to_h { |signal| [signal, trap(signal, "IGNORE")] }
      if pid
        Process.kill(:TERM, pid)
        Process.wait(pid)
      end
      kernel&.each { |path, value| File.write(path, value) unless File.read(path) == value }
      remove_groups
      missing&.each { |path| Dir.rmdir(path) }
      handlers.each { |signal, handler| trap(signal, handler) }
    end

    def self.groups = GROUPS.flat_map { |name| Dir[File.join(CONTROLLERS, name), File.join("/sys/fs/cgroup", name)] }

    # Inner groups first. A process that is about to end keeps its group for a moment.
    def self.remove_groups
      deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 10
      begin
        groups.each { |path| Dir["#{path}/**/"].sort_by { |one| -one.length }.each { |one| Dir.rmdir(one) } }
      rescue Errno::EBUSY
        raise if Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline

        sleep 0.1
        retry
      end
    end
    private_class_method :remove_groups
  end
end
