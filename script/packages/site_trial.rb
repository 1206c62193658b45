# frozen_string_literal: true

require_relative "container"
require_relative "site_image"

module Packages
  # Builds the image for sites, and runs it as strict engines do.
  class SiteTrial
    # Bytes that an engine downloads, at most.
    DOWNLOAD = 15_000_000

    # release:: of the tree that Container starts from; nothing of it is in the image
    def initialize(tarball, release)
      @tarball = tarball
      @release = release
    end

    def run
      puts "image for sites"
      Container.open(@release, []) do |machine|
        machine.become_image { |name, _| SiteImage.build(name, @tarball) }
        weigh(machine.download_size)
        serve(machine)
      end
    end

    private

    def weigh(size)
      puts format("  %.1f MB to download", size / 1e6)
      raise Failure, "the image has #{size} bytes, which is more than #{DOWNLOAD}" if size > DOWNLOAD
    end

    def serve(machine)
      files, words, expected = Trial::SERVED.fetch(Trial::SITE)
      said = machine.page(files, [machine.entry_point, *words]) { puts "  says of its health: #{machine.exec(*machine.health_check).strip}" }
      raise Failure, "it says #{said.inspect}, which is not #{expected.inspect}" unless expected.match?(said)

      puts "  serves #{said}"
    end
  end
end
