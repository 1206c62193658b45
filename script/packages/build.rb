# frozen_string_literal: true

require "fileutils"
require "open3"
require_relative "../../worker/lib/firebrick/version"
require_relative "target"

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

  # Returns the folder of a tree that script/tree makes: "trixie", "bookworm:arm64".
  def self.tree(name, *packages) = run("script/tree", name, *packages).lines.last.strip

  # Writes a program of the shell that becomes a command with the arguments it gets. Returns its path.
  def self.script(path, command)
    FileUtils.mkdir_p(File.dirname(path))
    File.write(path, "#!/bin/sh\nexec #{command} \"$@\"\n")
    File.chmod(0o755, path)
    path
  end

  # The compiled files: the program, and the worker for each Ruby. Those for another system than this machine's are compiled here (Cross);
  # the program and the worker for this machine's own Ruby are there already (`make optimised`).
  class Build
    RELEASES = Process.uid.zero? ? "trixie" : ""

    attr_reader :profile, :target

    # profile: the Profile with which the program was compiled.
    def initialize(profile, target = Target.new)
      @profile = profile
      @target = target
      @folder = File.expand_path(ENV.fetch("CARGO_TARGET_DIR", "target"), ROOT)
      @cross = Cross.new(target, profile, @folder) if target.foreign?
      return if @cross || File.executable?(program)

      raise Failure, "#{program} was not found: build it first (make dist does)"
    end

    def version = Firebrick::VERSION

    def program = @program ||= @cross ? @cross.program : File.join(@folder, "dist", "firebrick")

    # The variables with which the program runs on this machine.
    def run_environment = @cross ? @cross.run_environment : {}

    # The time stamp of every file in a package, in seconds, so that packages of the same sources are identical.
    def time = @time ||= Packages.time

    # Paths of the worker's library by ABI ("3.1").
    def natives
      @natives ||= @cross ? @cross.natives : releases.to_h { |release| Native.new(release, @profile, @folder).compile }.merge(RUBY_VERSION[/\A\d+\.\d+/] => own_native)
    end

    private

    def releases = ENV.fetch("DIST_RELEASES", RELEASES).split

    def own_native = File.join(@folder, "dist", "libfirebrick_worker.so")
  end
end

require_relative "cross"
require_relative "native"
