# frozen_string_literal: true

require_relative "build"

module Packages
  # The worker's library for the Ruby in a tree of Debian, compiled with that Ruby's headers by this machine's compiler, so it needs no newer C
  # library than the program.
  class Native
    # release:: of Debian, with its Ruby ("trixie") or another that it has ("experimental/3.4")
    # processor:: Debian's name of another one than this machine's ("arm64")
    # folder:: cargo's target folder, of which it gets a part of its own
    # cross:: how to compile for another system; nil: for this machine's
    def initialize(release, profile, folder, processor: nil, cross: nil)
      release, version = release.split("/", 2)
      @ruby = "ruby#{version}"
      @tree = Packages.tree([release, *processor].join(":"), @ruby, "#{@ruby}-dev")
      @profile = profile
      @folder = folder
      @cross = cross
    end

    # Returns the ABI ("3.3") and the library's path.
    def compile
      abi = ruby("RUBY_VERSION[/\\A\\d+\\.\\d+/]")
      folder = File.join(@folder, "ruby-#{abi}")
      Packages.run(ENV.fetch("CARGO", "cargo"), "build", "--profile", "dist", "--locked", "-p", "worker", "--target-dir", folder, *@cross&.words,
                   env: flags.merge(headers, @cross&.environment.to_h, "RUBY" => Packages.script(File.join(folder, "ruby"), "chroot #{@tree} #{@ruby}")))
      [abi, File.join(folder, *@cross&.triple, "dist", "libfirebrick_worker.so")]
    end

    private

    def flags
      { "RUSTFLAGS" => "#{ENV.fetch('RUSTFLAGS', '')} #{@profile.flags}", "CFLAGS" => [ENV.fetch("CFLAGS", nil), *Paths.c].compact.join(" ") }
    end

    def ruby(expression) = Packages.run("chroot", @tree, @ruby, "-e", "print #{expression}")

    # Makes rb-sys look for headers in the tree, instead of the path that the tree's Ruby reports.
    def headers
      %w[rubyhdrdir rubyarchhdrdir].to_h { |key| ["RBCONFIG_#{key}", File.join(@tree, ruby("RbConfig::CONFIG['#{key}']"))] }
    end
  end
end
