# frozen_string_literal: true

require_relative "deb"

module Packages
  # The image for containers, from deploy/image/Containerfile and the .deb, by buildah; in the machine's own storage as firebrick:VERSION.
  class Image
    RECIPE = "deploy/image/Containerfile"

    # Builds an image of the name from the .deb of this path. +base+ is the image that it is built on, instead of the one that the recipe
    # names; +time+, in seconds, is that of all its files.
    def self.build(name, deb, base: nil, time: nil)
      options = [*(["--timestamp", time] if time), *(["--build-arg", "BASE=#{base}"] if base)]
      Packages.run("buildah", "bud", "--isolation", "chroot", *options, "--build-arg", "DEB=#{File.basename(deb)}",
                   "--file", RECIPE, "--tag", name, File.dirname(deb))
    end

    # IMAGE_BASE:: the image that it is built on, instead of the one that the recipe names
    def initialize(build, deb, base: ENV.fetch("IMAGE_BASE", nil))
      @build = build
      @deb = deb
      @base = base
    end

    def name = "firebrick:#{@build.version}"

    # A sentence that names the image.
    def make
      Image.build(name, @deb.make, base: @base, time: @build.time)
      "The image is #{name}: buildah images firebrick"
    end
  end
end
