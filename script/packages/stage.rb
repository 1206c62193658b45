# frozen_string_literal: true

require "fileutils"
require "stringio"
require "zlib"
require_relative "build"
require_relative "licences"
require_relative "time"

module Packages
  # The folder from which all packages are made, laid out as a prefix: bin, lib, share. The program finds `lib` relative to its own folder.
  class Stage
    # The licences of the libraries in the program.
    LICENCES = "THIRD-PARTY-LICENCES.txt"

    attr_reader :path

    def initialize(build)
      @build = build
      @path = File.join(ROOT, "dist", "firebrick-#{build.version}-#{build.target.platform}")
    end

    def fill
      FileUtils.rm_rf(@path)
      program
      profile
      library
      manual
      completions
      papers
      settle
    end

    def program_path = File.join(@path, "bin", "firebrick")

    # Debugging symbols of the program; not in any package.
    def debug_path = "#{@path}.debug"

    # The profile with which the program was compiled, for compiling it again (PROFILE=FILE); not in any package. Missing without a profile.
    def profile_path = "#{@path}.profdata"

    # Bytes.
    def program_size = File.size(program_path)

    # Ruby files, relative to `lib`.
    def ruby_files = Dir.chdir(File.join(ROOT, "worker/lib")) { Dir["**/*.rb"].sort }

    # Sets the time of all files below a folder.
    def settle(path = @path)
      Dir.glob("**/*", File::FNM_DOTMATCH, base: path).sort.reverse_each do |name|
        file = File.join(path, name)
        File.chmod(File.directory?(file) || File.executable?(file) ? 0o755 : 0o644, file) unless File.symlink?(file)
        File.lutime(@build.time, @build.time, file)
      end
    end

    private

    def program
      FileUtils.mkdir_p(File.dirname(program_path))
      objcopy("--only-keep-debug", @build.program, debug_path)
      objcopy("--strip-all", "--add-gnu-debuglink=#{debug_path}", @build.program, program_path)
    end

    def profile
      FileUtils.rm_f(profile_path)
      FileUtils.cp(@build.profile.path, profile_path) if @build.profile.path
    end

    def library
      ruby_files.each { |file| put("lib/#{file}", File.read(File.join(ROOT, "worker/lib", file))) }
      @build.natives.each do |abi, library|
        file = File.join(@path, "lib/firebrick", abi, "native.so")
        FileUtils.mkdir_p(File.dirname(file))
        objcopy("--strip-unneeded", library, file)
      end
    end

    def manual
      put("share/man/man1/firebrick.1.gz", compressed(print("man")))
    end

    def completions
      put("share/bash-completion/completions/firebrick", print("completions", "bash"))
      put("share/zsh/vendor-completions/_firebrick", print("completions", "zsh"))
      put("share/fish/vendor_completions.d/firebrick.fish", print("completions", "fish"))
    end

    def papers
      %w[README.md CHANGELOG.md LICENSE SECURITY.md].each do |name|
        put("share/doc/firebrick/#{name}", File.read(File.join(ROOT, name)))
      end
      put("share/doc/firebrick/#{LICENCES}", Licences.new.to_s)
      FileUtils.cp_r(File.join(ROOT, "docs"), File.join(@path, "share/doc/firebrick"))
    end

    def print(*words) = Packages.run(program_path, *words, env: @build.run_environment)

    def objcopy(*words) = Packages.run(@build.target.tool("objcopy"), *words)

    def compressed(text)
      target = StringIO.new
      Zlib::GzipWriter.wrap(target, Zlib::BEST_COMPRESSION) do |gzip|
        gzip.mtime = @build.time
        gzip.write(text)
      end
      target.string
    end

    def put(name, text)
      file = File.join(@path, name)
      FileUtils.mkdir_p(File.dirname(file))
      File.binwrite(file, text)
    end
  end
end
