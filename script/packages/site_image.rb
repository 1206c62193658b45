# frozen_string_literal: true

require "fileutils"
require "tmpdir"
require_relative "image"

module Packages
  # Builds an image without a system, for sites, from deploy/image/Containerfile.site and the static program of a tarball; stored on the machine as
  # firebrick-site:VERSION.
  class SiteImage
    RECIPE = "deploy/image/Containerfile.site"
    # For origins with https, and certificates that the server orders itself.
    AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"

    # Builds an image of that name from this tarball.
    def self.build(name, tarball, time: nil)
      Dir.mktmpdir("firebrick-image") do |folder|
        fill(folder, tarball)
        Image.bud(RECIPE, name, folder, time: time)
      end
    end

    def self.fill(folder, tarball)
      raise Failure, "#{AUTHORITIES} is missing: install ca-certificates" unless File.exist?(AUTHORITIES)

      File.chmod(0o755, folder)
      FileUtils.mkdir_p(%w[usr/bin etc/ssl/certs srv/app tmp].map { |name| File.join(folder, name) })
      File.chmod(0o1777, File.join(folder, "tmp"))
      Packages.run("tar", "--extract", "--file", tarball, "--directory", File.join(folder, "usr/bin"), "--strip-components=2", "--wildcards", "*/bin/firebrick")
      FileUtils.cp(AUTHORITIES, File.join(folder, "etc/ssl/certs"))
      File.write(File.join(folder, "etc/passwd"), "app:x:1000:1000::/srv:/nonexistent\n")
      File.write(File.join(folder, "etc/group"), "app:x:1000:\n")
    end
    private_class_method :fill

    def initialize(build, tarball)
      @build = build
      @tarball = tarball
    end

    def name = "firebrick-site:#{@build.version}"

    # Builds the image. Returns a sentence with its name.
    def make
      SiteImage.build(name, @tarball.make, time: @build.time)
      "The image is #{name}: buildah images firebrick-site"
    end
  end
end
