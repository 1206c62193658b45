# frozen_string_literal: true

require_relative "../../test/support/clock"
require_relative "build"
require_relative "container"
require_relative "machine"
require_relative "site_trial"

module Packages
  # Installs a package into an empty tree, and uses it.
  class Trial
    KINDS = %w[deb gem tarball image].freeze
    # Packages that users of each kind have installed already.
    HAS = { "deb" => [], "gem" => %w[ruby ruby-rack], "tarball" => %w[ruby ruby-rack], "image" => [] }.freeze

    # The limit for an installation, in seconds. The promised time is a third of it, on an idle machine.
    INSTALL_WITHIN = 90

    # How much longer a program of another processor may take, by QEMU.
    EMULATED = 5

    # Bytes: the largest program that a package may install. It was 20.9 million before the cache, the coding of responses, routes, profiles and
    # leaks, and is 23.7 million with them.
    PROGRAM = 24 << 20
    # It has the C library as well.
    STATIC_PROGRAM = 25 << 20

    # After removal, no path may contain this name.
    NAME = "firebrick"

    HANDLER = "an mruby handler"
    SITE = "a static site"

    # Checks that the server works for each kind of content: files of the folder, the command, the expected response.
    SERVED = {
      "a Rack app" => [{ "config.ru" => "run ->(_) { [200, { 'content-type' => 'text/plain' }, [\"Ruby \#{RUBY_VERSION[/.../]}\"]] }" },
                       [], /\ARuby \d\.\d\z/],
      SITE => [{ "index.html" => "<p>a page", "static.json" => "{\"root\": \".\"}" }, [], /\A<p>a page\z/],
      HANDLER => [{ "hello.rb" => "->(env) { [200, {}, [\"mruby \#{MRUBY_VERSION[/.../]}\"]] }" },
                  %w[hello.rb --mruby], /\Amruby \d\.\d\z/]
    }.freeze

    # Returns the packages of a target that can be tried in trees of Debian, whose Ruby refuses a gem for musl.
    def self.kinds(target = Target.new) = (target.musl? ? %w[tarball image] : KINDS) & target.packages

    def initialize(kind, release, target = Target.new)
      @kind = kind
      @release = release
      @target = target
    end

    def run
      return SiteTrial.new(package("firebrick-*-#{@target.platform}.tar.gz"), @release).run if @target.musl? && @kind == "image"

      puts "#{@release}: #{@kind}"
      (@kind == "image" ? Container : Machine).open(tree, HAS.fetch(@kind)) do |machine|
        @machine = machine
        refuse_compilers
        seconds = Clock.elapsed { send("install_#{@kind}") }
        puts format("  installed in %.1f s", seconds)
        raise Failure, "which is more than #{install_within} s: what is installed that need not be?" if seconds > install_within

        look
        weigh
        SERVED.each { |what, (files, words, expected)| serve(what, files, words, expected) unless without_handlers?(what, files, words) }
        remove
      end
    end

    private

    def emulated? = @target.machine != Etc.uname[:machine]

    def install_within = emulated? ? INSTALL_WITHIN * EMULATED : INSTALL_WITHIN

    # As script/tree names it.
    def tree = emulated? ? "#{@release}:#{@target.architecture}" : @release

    def package(pattern)
      Dir[File.join(ROOT, "dist", pattern)].max_by { |file| File.mtime(file) } ||
        raise(Failure, "there is no dist/#{pattern}: make dist")
    end

    def refuse_compilers
      found = %w[cc gcc clang cargo rustc].select { |name| @machine.runs?("command -v #{name}") }
      raise Failure, "the tree has a compiler, so this proves nothing: #{found.join(', ')}" if found.any?
    end

    def install_deb
      @machine.bring(package("firebrick_*_#{@target.architecture}.deb"), "/tmp/firebrick.deb")
      @machine.install("--recommended", "/tmp/firebrick.deb")
      @command = "firebrick"
    end

    def install_gem
      file = package("firebrick-*-#{@target.platform}.gem")
      @machine.bring(file, "/tmp/#{File.basename(file)}")
      # Rack comes from Debian.
      @machine.shell("gem install --local --ignore-dependencies --no-document /tmp/#{File.basename(file)}")
      @command = "firebrick"
    end

    def install_tarball
      @machine.bring(package("firebrick-*-#{@target.platform}.tar.gz"), "/tmp/firebrick.tar.gz")
      @machine.shell("mkdir -p /opt/firebrick && tar -xzf /tmp/firebrick.tar.gz -C /opt/firebrick --strip-components=1")
      @command = "/opt/firebrick/bin/firebrick"
    end

    def install_image
      deb = package("firebrick_*_#{@target.architecture}.deb")
      @machine.become_image { |name, base| Image.build(name, deb, base: base) }
      @command = @machine.entry_point
    end

    def look
      expect("#{@command} -V", /\Afirebrick #{Regexp.escape(Firebrick::VERSION)}\b/i)
      return unless @kind == "deb"

      expect("dpkg-query -W -f '${Depends}' firebrick", /\Alibc6(:#{@target.architecture})? \(>= [\d.]+\)/)
      %w[/usr/share/man/man1/firebrick.1.gz /usr/share/bash-completion/completions/firebrick
         /usr/lib/systemd/system/firebrick.service /usr/share/doc/firebrick/docs/settings.md].each do |path|
        # Minimal trees leave out manuals and documents.
        next if path.start_with?("/usr/share/man",
                                 "/usr/share/doc") && @machine.runs?("grep -rqs '^path-exclude' /etc/dpkg/dpkg.cfg.d")

        raise Failure, "the package installs no #{path}" unless @machine.file?(path)
      end
      expect("ruby -e 'begin; require \"rackup/handler/firebrick\"; rescue LoadError; require \"rack/handler/firebrick\"; end; print Firebrick::Binary.path'",
             %r{\A/usr/lib/firebrick/bin/firebrick\z})
    end

    # Checks that there is one program, stripped, within the promised size.
    def weigh
      programs = @machine.shell("find / -xdev -type f -name firebrick -size +1M -printf '%s %p\\n'").lines(chomp: true)
      raise Failure, "the package installs #{programs.size} programs: #{programs.join(', ')}" unless programs.one?

      size, path = programs.first.split(" ", 2)
      puts format("  %<path>s has %<size>.1f MiB", path: path, size: size.to_f / (1 << 20))
      most = @target.musl? ? STATIC_PROGRAM : PROGRAM
      raise Failure, "#{path} has #{size} bytes, which is more than #{most}: what made it larger?" if size.to_i > most
    end

    def expect(command, pattern)
      said = @machine.shell(command)
      raise Failure, "`#{command}` says #{said.inspect}, which is not #{pattern.inspect}" unless pattern.match?(said)
    end

    def serve(what, files, words, expected)
      said = @machine.page(files, [@command, *words])
      raise Failure, "#{what} says #{said.inspect}, which is not #{expected.inspect}" unless expected.match?(said)

      puts "  serves #{what}: #{said}"
    end

    # Whether it was built without mruby, which it must say then.
    def without_handlers?(what, files, words)
      return false unless @target.musl? && what == HANDLER

      @machine.folder(files) do |folder|
        said = @machine.shell("cd #{folder} && ! #{@command} #{words.join(' ')} 2>&1")
        raise Failure, "for #{what} it says #{said.inspect}" unless said.include?("built without mruby")

        puts "  refuses #{what}: #{said.strip}"
      end
      true
    end

    def remove
      case @kind
      when "deb" then @machine.shell("DEBIAN_FRONTEND=noninteractive apt-get purge -y -qq firebrick && rm /tmp/firebrick.deb")
      when "gem" then @machine.shell("gem uninstall -x firebrick && rm /tmp/firebrick-*.gem")
      else return
      end
      left = @machine.shell("find / -xdev \\( -path /proc -o -path /sys \\) -prune -o -name '*#{NAME}*' -print").lines(chomp: true)
      # Servers of one user share the folder of their control sockets; it is empty.
      left.reject! { |path| path.start_with?("/var/lib/dpkg", "/var/log", "/var/cache", "/tmp/firebrick-0") }
      raise Failure, "removing it leaves #{left.join(', ')}" if left.any?
    end
  end
end
