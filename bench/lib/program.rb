# frozen_string_literal: true

require_relative "failure"

module Bench
  # The Firebrick that is measured.
  module Program
    ROOT = File.expand_path("../..", __dir__)

    class << self
      # Returns its absolute path: FIREBRICK, or the newest of these builds; without any, where the first of them would be.
      def path(*builds)
        builds << "dist" if builds.empty?
        given = ENV["FIREBRICK"].to_s
        return File.expand_path(given) unless given.empty?

        paths = builds.map { |build| File.join(ROOT, "target", build, "firebrick") }
        paths.select { |path| File.executable?(path) }.max_by { |path| File.mtime(path) } || paths.first
      end

      # The same. Raises Failure without a program there.
      def built(*builds)
        path(*builds).tap { |path| raise Failure, "#{path} is not there: run `make optimised`, or set FIREBRICK" unless File.executable?(path) }
      end

      # Builds an example of a crate. Returns its absolute path.
      def example(crate, name)
        built = system("cargo", "build", "--release", "--quiet", "--locked", "-p", crate, "--example", name, chdir: ROOT)
        raise Failure, "the example #{name} of #{crate} cannot be built" unless built

        File.join(File.expand_path(ENV.fetch("CARGO_TARGET_DIR", "target"), ROOT), "release/examples", name)
      end
    end
  end
end
