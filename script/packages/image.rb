# frozen_string_literal: true

require_relative "deb"

module Packages
  # Builds the container image from deploy/image/Containerfile and the .deb, with buildah; stored on the machine as firebrick:VERSION.
  class Image
    RECIPE = "deploy/image/Containerfile"

    # Builds an image of that name from this .deb. +base+ is the base image, instead of the one that the recipe
    # names; +time+ is the time stamp of all its files, in seconds.
    def self.build(name, deb, base: nil, time: nil)
      options = [*(["--timestamp", time] if time), *(["--build-arg", "BASE=#{base}"] if base)]
      Packages.run("buildah", "bud", "--isolation", "chroot", *options, "--build-arg", "DEB=#{File.basename(deb)}",
                   "--file", RECIPE, "--tag", name, File.dirname(deb))
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
