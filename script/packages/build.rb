# frozen_string_literal: true

require "etc"
require "open3"
require "rbconfig"
require_relative "../../lib/firebrick/version"

# Packages of Firebrick: what `make dist` makes, and how.
module Packages
  ROOT = File.expand_path("../..", __dir__)

  # Why a package could not be made.
  class Failure < StandardError; end

  # Runs a command and returns what it printed.
  def self.run(*command, env: {}, dir: ROOT)
    output, status = Open3.capture2e(env, *command.map(&:to_s), chdir: dir)
    return output if status.success?

    raise Failure, "#{command.join(' ')} failed:\n#{output.lines.last(30).join}"
  rescue Errno::ENOENT
    raise Failure, "#{command.first} is missing: install it first (script/setup dist)"
  end

  # What was compiled: the program, and the worker for each Ruby.
  class Build
    RELEASES = Process.uid.zero? ? "trixie" : ""

    # profile: the Profile by which the program was compiled.
    def initialize(profile)
      @profile = profile
      @target = File.expand_path(ENV.fetch("CARGO_TARGET_DIR", "target"), ROOT)
      return if File.executable?(program)

      raise Failure, "#{program} was not found: build it first (make dist does)"
    end

    attr_reader :profile

    def version = Firebrick::VERSION

    # As compilers, tarballs and gems call it: x86_64-linux.
    def platform = "#{Etc.uname[:machine]}-linux"

    # Debian's name of the processor.
    def architecture = @architecture ||= Packages.run("dpkg", "--print-architecture").strip

    def program = File.join(@target, "dist", "firebrick")

    # Seconds; the time of every file in a package, so that packages of the same sources are the same.
    def time = @time ||= Integer(ENV["SOURCE_DATE_EPOCH"] || Packages.run("git", "log", "-1", "--format=%ct"))

    # Paths of the worker's library by ABI ("3.1").
    def natives
      @natives ||= releases.to_h { |release| compile_for(release) }.merge(RUBY_VERSION[/\A\d+\.\d+/] => own_native)
    end

    private

    def releases = ENV.fetch("DIST_RELEASES", RELEASES).split

    def own_native = File.join(@target, "dist", "libfirebrick_worker.so")

    # Compiled here, with the headers of the Ruby in a tree: so it needs no newer C library than the program does.
    def compile_for(release)
      tree = Packages.run("script/tree", release, "ruby", "ruby-dev").lines.last.strip
      abi = Packages.run("chroot", tree, "ruby", "-e", "print RUBY_VERSION[/\\A\\d+\\.\\d+/]")
      folder = File.join(@target, "ruby-#{abi}")
      Packages.run(ENV.fetch("CARGO", "cargo"), "build", "--profile", "dist", "--locked", "-p", "worker", "--target-dir", folder,
                   env: headers(tree).merge("RUBY" => in_tree(tree, folder), "RUSTFLAGS" => "#{ENV.fetch('RUSTFLAGS', '')} #{profile.flags}"))
      [abi, File.join(folder, "dist", "libfirebrick_worker.so")]
    end

    # Where rb-sys looks for headers, in the place of what the tree's Ruby says.
    def headers(tree)
      %w[rubyhdrdir rubyarchhdrdir].to_h do |key|
        ["RBCONFIG_#{key}",
         File.join(tree, Packages.run("chroot", tree, "ruby", "-e", "print RbConfig::CONFIG['#{key}']"))]
      end
    end

    # A program that asks the tree's Ruby.
    def in_tree(tree, folder)
      File.join(FileUtils.mkdir_p(folder).first, "ruby").tap do |path|
        File.write(path, "#!/bin/sh\nexec chroot #{tree} ruby \"$@\"\n")
        File.chmod(0o755, path)
      end
    end
  end
end
