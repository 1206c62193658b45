# frozen_string_literal: true

require "rubygems"
require "rubygems/package"
require_relative "stage"

module Packages
  # The gem for a platform: contains the program, and the worker for some Rubies; others have the worker in plain Ruby. Installing it compiles
  # nothing.
  class PlatformGem
    def initialize(build, stage)
      @build = build
      @stage = stage
    end

    def make
      folder = fill(File.join(ROOT, "dist", "gem"))
      spec = specification(folder)
      file = File.join(ROOT, "dist", spec.file_name)
      Dir.chdir(folder) do
        Gem::DefaultUserInteraction.use_ui(Gem::SilentUI.new) do
          Gem::Package.build(spec, false, true, file)
        end
      end
      FileUtils.rm_rf(folder)
      file
    rescue Gem::Exception => e
      raise Failure, "the gem: #{e.message}"
    end

    private

    # Adds Ruby files, the program in libexec, the script that starts it, documents.
    def fill(folder)
      FileUtils.rm_rf(folder)
      FileUtils.mkdir_p(File.join(folder, "libexec"))
      FileUtils.mkdir_p(File.join(folder, "worker"))
      FileUtils.cp_r(File.join(@stage.path, "lib"), File.join(folder, "worker"))
      FileUtils.cp(@stage.program_path, File.join(folder, "libexec"))
      FileUtils.cp_r(File.join(ROOT, "exe"), folder)
      FileUtils.cp(%w[README.md CHANGELOG.md LICENSE SECURITY.md].map { |name| File.join(ROOT, name) }, folder)
      FileUtils.cp(File.join(@stage.path, "share/doc/firebrick", Stage::LICENCES), folder)
      @stage.settle(folder)
      folder
    end

    # The specification of the source gem, without the sources.
    def specification(folder)
      Gem::Specification.load(File.join(ROOT, "firebrick.gemspec")).dup.tap do |spec|
        spec.files = Dir.glob("**/*", base: folder).select { |file| File.file?(File.join(folder, file)) }.sort
        spec.extensions = []
        spec.platform = Gem::Platform.new(@build.target.platform)
      end
    end
  end
end
