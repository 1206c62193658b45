# frozen_string_literal: true

require_relative "deb"

module Packages
  # The image for containers, from deploy/Containerfile and the .deb, by buildah; in the machine's own storage as firebrick:VERSION.
  class Image
    # IMAGE_BASE:: the image that it is built on, instead of the one that the recipe names
    def initialize(build, deb, base: ENV.fetch("IMAGE_BASE", nil))
      @build = build
      @deb = deb
      @base = base
    end

    def name = "firebrick:#{@build.version}"

    # A sentence that names the image.
    def make
      deb = @deb.make
      base = @base ? ["--build-arg", "BASE=#{@base}"] : []
      Packages.run("buildah", "bud", "--isolation", "chroot", "--timestamp", @build.time, *base, "--build-arg", "DEB=#{File.basename(deb)}",
                   "--file", "deploy/Containerfile", "--tag", name, File.dirname(deb))
      "The image is #{name}: buildah images firebrick"
    end
  end
end
