# frozen_string_literal: true

require "digest"
require "fileutils"
require "json"
require "open3"

# Kubernetes on this machine, for tests: compiles and runs the needed parts.
module Kubernetes
  ROOT = File.expand_path("../../..", __dir__)
  MODULES = File.join(ROOT, "deploy", "kube")

  # An error that the user can fix; the message says how.
  class Failure < StandardError; end

  # Programs and schemas that are made once from public Go modules. Their names contain the versions of their sources, so no file in the folder
  # is ever out of date. The folder may be removed at any time.
  #
  # KUBE_CACHE  the folder; otherwise firebrick/kube in $XDG_CACHE_HOME or ~/.cache
  # GO          the command of Go (go)
  class Cache
    # Uses the installed Go, which must be as new as go.mod says, and downloads no other.
    ENVIRONMENT = { "GOTOOLCHAIN" => "local", "GOFLAGS" => "-buildvcs=false" }.freeze

    attr_reader :folder

    def initialize
      home = ENV["XDG_CACHE_HOME"].to_s
      home = File.join(Dir.home, ".cache") if home.empty?
      @folder = File.expand_path(ENV["KUBE_CACHE"] || File.join(home, "firebrick", "kube"))
    end

    def self.go = ENV.fetch("GO", "go")

    # Returns the version of a module that deploy/kube/+from+ names.
    def self.version(path, from) = File.read(File.join(MODULES, from, "go.mod"))[/^\s*#{Regexp.escape(path)} (v\S+)/, 1]

    # Returns whether programs can be compiled here: Go is installed, and as new as go.mod says.
    def self.go?
      version = IO.popen(ENVIRONMENT, [go, "env", "GOVERSION", { err: File::NULL }], &:read)[/\Ago([\d.]+)/, 1]
      wanted = File.read(File.join(MODULES, "chart", "go.mod"))[/^go (\S+)/, 1]
      !version.nil? && Gem::Version.new(version) >= Gem::Version.new(wanted)
    rescue Errno::ENOENT
      false
    end

    # For programs that run for a second: a third less time to compile, but slower code.
    QUICK = ["-gcflags=all=-N -l -dwarf=false"].freeze

    # Returns the path of a program: the package +what+ of the module in deploy/kube/+from+. Compiles it if it is missing.
    def program(from, what, name, flags: [])
      dir = File.join(MODULES, from)
      path = File.join(@folder, "#{name}-#{digest(dir, flags)}")
      return path if File.executable?(path)

      FileUtils.mkdir_p(@folder)
      partial = "#{path}.#{Process.pid}"
      began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      warn "compiling #{name}"
      go("build", "-trimpath", "-ldflags=-s -w", *flags, "-o", partial, what, dir: dir)
      File.rename(partial, path)
      warn format("compiled %<name>s in %<seconds>.0f s", name: name, seconds: Process.clock_gettime(Process::CLOCK_MONOTONIC) - began)
      path
    ensure
      FileUtils.rm_f(partial) if partial
    end

    # Returns the folder of a module's sources.
    def sources(path, version)
      (@sources ||= {})[[path, version]] ||= JSON.parse(go("mod", "download", "-json", "#{path}@#{version}")).fetch("Dir")
    end

    # Downloads the sources of a module's packages, without compiling.
    def fetch(from, *packages)
      go("list", "-deps", "-f", "", *packages, dir: File.join(MODULES, from))
    end

    private

    def digest(dir, flags)
      files = Dir[File.join(dir, "{go.mod,go.sum,*.go}")].sort
      Digest::SHA256.hexdigest([*files.map { |file| File.read(file) }, *flags].join("\0"))[0, 12]
    end

    def go(*words, dir: MODULES)
      out, err, status = Open3.capture3(ENVIRONMENT, self.class.go, *words, chdir: dir)
      raise Failure, "go #{words.join(' ')} failed in #{dir}:\n#{err.lines.last(20).join}#{out[0, 2000]}" unless status.success?

      out
    rescue Errno::ENOENT
      raise Failure, "#{self.class.go} was not found: install Go 1.26 or later, or name it in GO"
    end
  end
end
