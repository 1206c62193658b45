# frozen_string_literal: true

require "etc"
require "open3"
require "rbconfig"
require_relative "../../worker/lib/firebrick/version"

# Packages of Firebrick, for `make dist`.
module Packages
  ROOT = File.expand_path("../..", __dir__)

  # The reason why a package could not be made.
  class Failure < StandardError; end

  # Runs a command and returns its output.
  def self.run(*command, env: {}, dir: ROOT)
    output, status = Open3.capture2e(env, *command.map(&:to_s), chdir: dir)
    return output if status.success?

    raise Failure, "#{command.join(' ')} failed:\n#{output.lines.last(30).join}"
  rescue Errno::ENOENT
    raise Failure, "#{command.first} is missing: install it first (script/setup dist)"
  end

  # The compiled files: the program, and the worker for each Ruby.
  class Build
    RELEASES = Process.uid.zero? ? "trixie" : ""

    # profile: the Profile with which the program was compiled.
    def initialize(profile)
      @profile = profile
      @target = File.expand_path(ENV.fetch("CARGO_TARGET_DIR", "target"), ROOT)
      return if File.executable?(program)

      raise Failure, "#{program} was not found: build it first (make dist does)"
    end

    attr_reader :profile

    def version = Firebrick::VERSION

    # The platform as compilers, tarballs and gems name it: x86_64-linux.
    def platform = "#{Etc.uname[:machine]}-linux"

    # Debian's name of the processor.
    def architecture = @architecture ||= Packages.run("dpkg", "--print-architecture").strip

    def program = File.join(@target, "dist", "firebrick")

    # The time stamp of every file in a package, in seconds, so that packages of the same sources are identical.
    def time = @time ||= Packages.time

    # Paths of the worker's library by ABI ("3.1").
    def natives
      @natives ||= releases.to_h { |release| compile_for(release) }.merge(RUBY_VERSION[/\A\d+\.\d+/] => own_native)
    end

    private

    def releases = ENV.fetch("DIST_RELEASES", RELEASES).split

    def own_native = File.join(@target, "dist", "libfirebrick_worker.so")

    # Compiles the worker here, with the headers of the Ruby in a tree, so it needs no newer C library than the program.
    def compile_for(release)
      tree = Packages.run("script/tree", release, "ruby", "ruby-dev").lines.last.strip
      abi = Packages.run("chroot", tree, "ruby", "-e", "print RUBY_VERSION[/\\A\\d+\\.\\d+/]")
      folder = File.join(@target, "ruby-#{abi}")
      Packages.run(ENV.fetch("CARGO", "cargo"), "build", "--profile", "dist", "--locked", "-p", "worker", "--target-dir", folder,
                   env: headers(tree).merge("RUBY" => in_tree(tree, folder), "RUSTFLAGS" => "#{ENV.fetch('RUSTFLAGS', '')} #{profile.flags}", "CFLAGS" => [ENV.fetch("CFLAGS", nil), *Paths.c].compact.join(" ")))
      [abi, File.join(folder, "dist", "libfirebrick_worker.so")]
    end

    # Makes rb-sys look for headers in the tree, instead of the path that the tree's Ruby reports.
    def headers(tree)
      %w[rubyhdrdir rubyarchhdrdir].to_h do |key|
        ["RBCONFIG_#{key}",
         File.join(tree, Packages.run("chroot", tree, "ruby", "-e", "print RbConfig::CONFIG['#{key}']"))]
      end
    end

    # Returns a program that runs the tree's Ruby.
    def in_tree(tree, folder)
      File.join(FileUtils.mkdir_p(folder).first, "ruby").tap do |path|
        File.write(path, "#!/bin/sh\nexec chroot #{tree} ruby \"$@\"\n")
        File.chmod(0o755, path)
      end
    end
  end
end
