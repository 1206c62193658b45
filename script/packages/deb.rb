# frozen_string_literal: true

require_relative "stage"

module Packages
  # Makes Debian's package with cargo-deb: the program and its Ruby files in /usr/lib/firebrick, `firebrick` in the path, a disabled systemd
  # unit. Ruby is recommended, not required: sites and mruby handlers need none. server/cli/Cargo.toml lists the dependencies.
  class Deb
    HOME = "usr/lib/firebrick"

    def initialize(build, stage)
      @build = build
      @stage = stage
    end

    # Returns the file's path. Makes it once.
    def make
      @make ||= pack
    end

    private

    def pack
      unless system("cargo", "deb", "--version", out: File::NULL, err: File::NULL)
        raise Failure, "cargo-deb is missing: install it first (script/setup dist)"
      end

      fill(root)
      file = File.join(ROOT, "dist", "firebrick_#{@build.version}_#{@build.target.architecture}.deb")
      Packages.run("cargo", "deb", "--no-build", "--no-strip", "--package", "cli", "--deb-version", @build.version, "--output", file, *(["--target", @build.target.triple] if @build.target.foreign?))
      FileUtils.rm_rf(root)
      file
    end

    # server/cli/Cargo.toml names this folder.
    def root = File.join(ROOT, "dist", "deb")

    def fill(root)
      FileUtils.rm_rf(root)
      %w[bin lib].each { |name| copy("#{@stage.path}/#{name}", "#{root}/#{HOME}/#{name}") }
      %w[man bash-completion zsh fish].each { |name| copy("#{@stage.path}/share/#{name}", "#{root}/usr/share/#{name}") }
      copy("#{@stage.path}/share/doc/firebrick", "#{root}/usr/share/doc/firebrick")
      links(root)
      unit(root)
      @stage.settle(root)
    end

    # Adds the command, and the links by which Ruby finds `firebrick` and Rack's handlers. Links each file, because cargo-deb copies links to folders.
    def links(root)
      link("#{root}/usr/bin/firebrick", "../lib/firebrick/bin/firebrick")
      Dir.glob("**/*.{rb,so}", base: "#{@stage.path}/lib").each do |name|
        link("#{root}/usr/lib/ruby/vendor_ruby/#{name}", "#{'../' * (name.count('/') + 2)}firebrick/lib/#{name}")
      end
    end

    def unit(root)
      text = File.read(File.join(ROOT, "deploy/firebrick.service")).gsub("/usr/local/bin/", "/usr/bin/")
      put("#{root}/usr/lib/systemd/system/firebrick.service", text)
      put("#{root}/usr/lib/systemd/system/firebrick.socket", File.read(File.join(ROOT, "deploy/firebrick.socket")))
    end

    def copy(from, to)
      FileUtils.mkdir_p(File.dirname(to))
      FileUtils.cp_r(from, to)
    end

    def put(file, text)
      FileUtils.mkdir_p(File.dirname(file))
      File.write(file, text)
    end

    def link(file, target)
      FileUtils.mkdir_p(File.dirname(file))
      FileUtils.ln_s(target, file)
    end
  end
end
