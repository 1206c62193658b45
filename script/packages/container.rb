# frozen_string_literal: true

require "json"
require_relative "image"
require_relative "machine"

module Packages
  # An image of a release of Debian, in which servers run as strict engines run them: as the user, in the folder, with the variables and the
  # command that the image names; without a capability, and with nothing that can be written but /tmp. By buildah and crun.
  class Container < Machine
    # Where engines look for programs if an image does not say it.
    PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

    # The release's tree as an image: registries need not be reachable.
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

    # Becomes what the recipe makes of it and of the .deb of this path.
    def become_image(deb)
      name = named("trial")
      Image.build(name, deb, base: @base)
      use(name)
      @config = JSON.parse(Packages.run("buildah", "inspect", "--type", "image", name)).dig("OCIv1", "config")
    end

    # The command that it starts.
    def entry_point = @config.fetch("Entrypoint").join(" ")

    # A folder of this machine, with these files in it, that the servers have as their working folder.
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

    # The words are the command, which is the image's, and its arguments.
    def starting(folder, words)
      File.write(File.join(@dir, "config.json"), JSON.generate(specification(folder, words.drop(1))))
      # crun wants control groups of one version, though it is told to use none.
      ["unshare", "--mount", "sh", "-c", "mount -t cgroup2 cgroup2 /sys/fs/cgroup && exec \"$@\"", "sh",
       "crun", "--cgroup-manager=disabled", "run", "--bundle", @dir, id]
    end

    # The server is process 1 of its container.
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
      # The network is this machine's, so that the test reaches it.
      spec["linux"]["namespaces"].reject! { |namespace| %w[network cgroup].include?(namespace["type"]) }
      spec
    end

    def environment
      given = @config.fetch("Env", [])
      given.any? { |text| text.start_with?("PATH=") } ? given : [PATH, *given]
    end

    # The numbers of the image's user, which must not be root's. A name would do here, but not where pods may not run as root.
    def user
      uid, gid = @config.fetch("User")[/\A\d+:\d+\z/]&.split(":")&.map { |text| Integer(text) }
      raise Failure, "the image's user is #{@config['User'].inspect}: say USER in #{Image::RECIPE} as UID:GID, in numbers" unless uid
      raise Failure, "the image's user is root: say another USER in #{Image::RECIPE}" if uid.zero?

      { "uid" => uid, "gid" => gid }
    end
  end
end
