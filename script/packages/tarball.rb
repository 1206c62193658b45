# frozen_string_literal: true

require_relative "stage"

module Packages
  # A tarball that can be unpacked anywhere: firebrick-VERSION-PLATFORM/bin/firebrick.
  class Tarball
    def initialize(build, stage)
      @build = build
      @stage = stage
    end

    # Returns the file's path. Makes it once.
    def make
      @make ||= pack
    end

    private

    def pack
      file = "#{@stage.path}.tar.gz"
      folder = File.basename(@stage.path)
      Packages.run("tar", "--create", "--file=#{file}", "--use-compress-program=gzip -9n", "--sort=name", "--owner=0", "--group=0",
                   "--numeric-owner", "--mtime=@#{@build.time}", folder, dir: File.dirname(@stage.path))
      file
    end
  end
end
