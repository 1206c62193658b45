# frozen_string_literal: true

require_relative "deb"

module Packages
  # Builds the container image from deploy/image/Containerfile and the .deb, with buildah; stored on the machine as firebrick:VERSION.
  class Image
    RECIPE = "deploy/image/Containerfile"

    # Builds an image of that name from this .deb. +base+ is the base image, instead of the one that the recipe
    # names; +time+ is the time stamp of all its files, in seconds.
    def self.build(name, deb, base: nil, time: nil)
      arguments = { "DEB" => File.basename(deb), "BASE" => base }.compact
      bud(RECIPE, name, File.dirname(deb), arguments: arguments, time: time)
    end

    # Builds an image of that name by a recipe from a folder, in the format that keeps health checks.
    def self.bud(recipe, name, folder, arguments: {}, time: nil)
      words = arguments.flat_map { |key, value| ["--build-arg", "#{key}=#{value}"] }
      Packages.run("buildah", "bud", "--isolation", "chroot", "--format", "docker", *(["--timestamp", time] if time), *words,
                   "--label", "org.opencontainers.image.version=#{Firebrick::VERSION}", "--file", recipe, "--tag", name, folder)
    end

    # IMAGE_BASE:: the base image, instead of the one that the recipe names
    def initialize(build, deb, base: ENV.fetch("IMAGE_BASE", nil))
      @build = build
      @deb = deb
      @base = base
    end

    def name = "firebrick:#{@build.version}"

    # Builds the image. Returns a sentence with its name.
    def make
      Image.build(name, @deb.make, base: @base, time: @build.time)
      "The image is #{name}: buildah images firebrick"
    end
  end
end
