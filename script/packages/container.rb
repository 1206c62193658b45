# frozen_string_literal: true

require "json"
require_relative "image"
require_relative "machine"

module Packages
  # An image of a release of Debian, in which servers run as under strict engines: with the image's user, folder, variables and
  # command; without capabilities, and with /tmp as the only writable folder. Uses buildah and crun.
  class Container < Machine
    # The engines' default path for an image without one.
    PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

    # Makes an image of the release's tree, because registries need not be reachable.
    def mount
      empty = Packages.run("buildah", "from", "scratch").strip
      Packages.run("buildah", "add", "--quiet", empty, tree, "/")
      @base = named("base")
      Packages.run("buildah", "commit", "--quiet", "--rm", empty, @base)
      use(@base)
    end

    def unmount
      system("crun", "delete", "--force", id, err: File::NULL)
      drop
      images.reverse_each { |name| system("buildah", "rmi", "--force", name, out: File::NULL, err: File::NULL) }
      FileUtils.remove_entry(@dir)
    end

    # Replaces the container by an image that the block builds: it gets the image's name, and that of the tree's image.
    def become_image
      @image = named("trial")
      yield @image, @base
      use(@image)
      @config = JSON.parse(Packages.run("buildah", "inspect", "--type", "image", @image)).dig("Docker", "config")
    end

    # The command that the image starts.
    def entry_point = @config.fetch("Entrypoint").join(" ")

    # The command that asks whether the server is well, which engines run in the container.
    def health_check = @config.fetch("Healthcheck").fetch("Test").drop(1)

    # Runs a command in the container of the running server.
    def exec(*words) = Packages.run("crun", "exec", "--cwd", @config.fetch("WorkingDir"), "--user", @config.fetch("User"), id, *words)

    # Bytes that an engine downloads.
    def download_size
      archive = File.join(@dir, "image.tar")
      Packages.run("buildah", "push", "--quiet", @image, "docker-archive:#{archive}")
      Packages.run("gzip", "--keep", archive)
      File.size("#{archive}.gz")
    end

    # Makes a folder of this machine with these files, as the servers' working folder.
    def folder(files)
      path = File.join(@dir, "app")
      FileUtils.mkdir_p(path)
      files.each { |name, text| File.write(File.join(path, name), text) }
      FileUtils.chmod_R("a+rX", @dir)
      yield path
    ensure
      FileUtils.rm_rf(path)
    end

    private

    def images = @images ||= []

    def named(what) = "localhost/firebrick-test:#{what}-#{Process.pid}".tap { |name| images << name }

    # Mounts a container of the image of this name.
    def use(image)
      drop
      @container = Packages.run("buildah", "from", "--pull-never", image).strip
      @root = Packages.run("buildah", "mount", @container).strip
    end

    # Its name for crun.
    def id = File.basename(@dir)

    def drop
      system("buildah", "rm", @container, out: File::NULL, err: File::NULL) if @container
      @container = nil
    end

    # Returns the command that starts the server. The words are the image's command and its arguments.
    def starting(folder, words)
      File.write(File.join(@dir, "config.json"), JSON.generate(specification(folder, words.drop(1))))
      # crun requires control groups of one version, though it is told to use none.
      ["unshare", "--mount", "sh", "-c", "mount -t cgroup2 cgroup2 /sys/fs/cgroup && exec \"$@\"", "sh",
       "crun", "--cgroup-manager=disabled", "run", "--bundle", @dir, id]
    end

    # Returns the server, which is process 1 of its container.
    def process(_pid)
      Integer(Packages.run("crun", "state", id)[/"pid": (\d+)/, 1])
    end

    def stop_signal = @config.fetch("StopSignal")

    def specification(folder, arguments)
      spec = JSON.parse(Packages.run("sh", "-c", "cd \"$(mktemp -d)\" && crun spec && cat config.json && rm -r \"$PWD\""))
      spec["root"] = { "path" => @root, "readonly" => true }
      spec["process"].merge!("terminal" => false, "args" => @config.fetch("Entrypoint") + arguments, "user" => user,
                             "env" => environment, "cwd" => @config.fetch("WorkingDir"), "noNewPrivileges" => true, "capabilities" => {})
      spec["mounts"] += [
        { "destination" => "/tmp", "type" => "tmpfs", "source" => "tmpfs", "options" => %w[nosuid nodev mode=1777] },
        { "destination" => @config.fetch("WorkingDir"), "type" => "bind", "source" => folder, "options" => %w[bind ro] }
      ]
      # The network is this machine's, so that the test can connect.
      spec["linux"]["namespaces"].reject! { |namespace| %w[network cgroup].include?(namespace["type"]) }
      spec
    end

    def environment
      given = @config.fetch("Env", [])
      given.any? { |text| text.start_with?("PATH=") } ? given : [PATH, *given]
    end

    # The numeric ids of the image's user, which must not be root's. A name would work here, but not where pods must not run as root.
    def user
      uid, gid = @config.fetch("User")[/\A\d+:\d+\z/]&.split(":")&.map { |text| Integer(text) }
      raise Failure, "the image's user is #{@config['User'].inspect}: say USER in #{Image::RECIPE} as UID:GID, in numbers" unless uid
      raise Failure, "the image's user is root: say another USER in #{Image::RECIPE}" if uid.zero?

      { "uid" => uid, "gid" => gid }
    end
  end
end
