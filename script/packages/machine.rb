# frozen_string_literal: true

require "fileutils"
require "net/http"
require "tmpdir"
require_relative "../../test/support/clock"
require_relative "build"

module Packages
  # An empty tree of a release of Debian, for the duration of a block: an overlay on the tree of script/tree, so changes are discarded.
  # Commands run in it by chroot, with their own processes and /proc.
  class Machine
    # Seconds; a bound on waiting, not a requirement.
    START_WITHIN = 60

    def self.open(release, packages)
      machine = new(release)
      machine.mount
      machine.install(*packages) if packages.any?
      yield machine
    ensure
      machine&.unmount
    end

    def initialize(release)
      @release = release
      @dir = Dir.mktmpdir("firebrick-machine")
    end

    def mount
      @root = File.join(@dir, "root")
      # Overlays cannot be stacked: a memory file system holds the changes.
      Packages.run("mount", "-t", "tmpfs", "tmpfs", @dir)
      parts = %w[root upper work].map { |name| File.join(@dir, name).tap { |path| Dir.mkdir(path) } }
      Packages.run("mount", "-t", "overlay", "overlay", "-o",
                   "lowerdir=#{tree},upperdir=#{parts[1]},workdir=#{parts[2]}", @root)
      FileUtils.rm_f(File.join(@root, ".complete"))
    end

    def unmount
      [@root, @dir].compact.each { |path| system("umount", path, err: File::NULL) }
      FileUtils.remove_entry(@dir)
    end

    # Installs packages of Debian, by name or by a path in it; options are those of script/apt-install.
    def install(*packages)
      options, packages = packages.partition { |word| word.start_with?("--") }
      Packages.run("script/apt-install", "--in", @root, *options, *packages)
    end

    # Returns the output of a shell command. Raises Failure unless it succeeds.
    def shell(command)
      Packages.run(*inside(command))
    end

    def runs?(command)
      system(*inside(command), out: File::NULL, err: File::NULL)
    end

    def file?(path) = File.exist?(File.join(@root, path)) || File.symlink?(File.join(@root, path))

    # Copies a file of this machine into it.
    def bring(file, path)
      FileUtils.mkdir_p(File.dirname(File.join(@root, path)))
      FileUtils.cp(file, File.join(@root, path))
    end

    # Makes a folder with these files in it, for the duration of a block.
    def folder(files)
      path = "/srv/trial"
      files.each do |name, text|
        FileUtils.mkdir_p(File.join(@root, path))
        File.write(File.join(@root, path, name), text)
      end
      yield path
    ensure
      FileUtils.rm_rf(File.join(@root, path))
    end

    # Starts a server by a command in a folder with these files. Returns the front page; the server still runs while the block does.
    def page(files, words)
      folder(files) do |path|
        server(path, [*words, "-b", "tcp://127.0.0.1:0"]) do |port|
          Net::HTTP.get(URI("http://127.0.0.1:#{port}/")).tap { yield if block_given? }
        end
      end
    end

    # Starts a server by a command in a folder and yields its port; then asks it to stop, which must succeed. Returns
    # the block's value.
    def server(folder, words)
      log = File.join(@dir, "server.log")
      pid = Process.spawn(*starting(folder, words), in: File::NULL, out: [log, "w"], err: %i[child out], pgroup: true)
      result = yield port(pid, log)
      stop(pid, log)
      pid = nil
      result
    ensure
      if pid
        Process.kill("KILL", -pid)
        Process.wait(pid)
      end
    end

    private

    def tree = Packages.tree(@release)

    def starting(folder, words) = inside("cd #{folder} && exec #{words.join(' ')}")

    # Returns the server, which is process 1 of its namespace: the only child of the started process.
    def process(pid) = Integer(File.read("/proc/#{pid}/task/#{pid}/children").split.first)

    def stop_signal = "TERM"

    def stop(pid, log)
      Process.kill(stop_signal, process(pid))
      status = nil
      Clock.wait_until(within: START_WITHIN) { status = Process.wait2(pid, Process::WNOHANG)&.last }
      raise Failure, "the server did not end after #{stop_signal}: #{status.inspect}\n#{File.read(log)}" unless status&.success?
    end

    def inside(command)
      ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c",
       "mount -t proc proc #{@root}/proc && exec chroot #{@root} env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin " \
       "HOME=/root LANG=C.UTF-8 sh -c \"$1\"", "sh", command]
    end

    def port(pid, log)
      found = nil
      Clock.wait_until(within: START_WITHIN) do
        found = File.read(log)[%r{Listening on http://\[?[\d.:]+?\]?:(\d+)$}, 1]
        found || Process.wait(pid, Process::WNOHANG)
      end
      found || raise(Failure, "the server did not start:\n#{File.read(log)}")
    end
  end
end
