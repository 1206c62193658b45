# frozen_string_literal: true

require "fileutils"
require "open3"
require_relative "../../../worker/lib/firebrick/version"
require_relative "cache"

module Kubernetes
  # The images of a run with containers, as archives in a folder: an app's image, which adds a config.ru to Firebrick's, as users do; and the
  # image of the process that holds a pod's namespaces. Made with buildah from the image that `make dist` leaves in the machine's storage.
  class Images
    # IMAGE:: the image of Firebrick, by its name for buildah
    FIREBRICK = ENV.fetch("IMAGE", "firebrick:#{Firebrick::VERSION}")
    REPOSITORY = "registry.example.com/shop"
    PAUSE = "registry.example.com/pause:1"

    # /        sleeps for the time in the variable
    # /digest  returns the digest of the body
    # /eat     allocates memory, until the kernel kills the process
    APP = <<~'RUBY'
      require "digest"
      seconds = Float(ENV.fetch("APP_SECONDS"))
      text = ->(body) { [200, { "content-type" => "text/plain" }, [body]] }
      run(lambda do |env|
        case env["PATH_INFO"]
        when "/digest"
          digest = Digest::SHA256.new
          while (part = env["rack.input"].read(65_536))
            digest << part
          end
          text.call(digest.hexdigest)
        when "/eat" then text.call(Array.new(10_000) { "x" * 1_048_576 }.size.to_s)
        else
          sleep seconds
          text.call("Hello")
        end
      end)
    RUBY

    def self.path(folder, name) = File.join(folder, "#{name}.tar")

    def initialize(folder)
      @folder = folder
    end

    def make
      container = buildah("from", "--pull-never", FIREBRICK).strip
      FileUtils.mkdir_p(app = File.join(@folder, "app"))
      File.write(File.join(app, "config.ru"), APP)
      buildah("copy", "--quiet", container, app, "/srv/app")
      commit(container, "app", "#{REPOSITORY}:1")
      # Container engines kill it.
      buildah("config", "--entrypoint", '["sleep", "infinity"]', container)
      commit(container, "pause", PAUSE)
    ensure
      buildah("rm", container) if container
    end

    private

    def commit(container, file, name) = buildah("commit", "--quiet", container, "docker-archive:#{Images.path(@folder, file)}:#{name}")

    def buildah(*words)
      out, err, status = Open3.capture3("buildah", *words)
      return out if status.success?

      raise Failure, "buildah #{words.join(' ')} failed:\n#{err}#{"Make the image first (make dist PACKAGES=image, docs/installing.md), or name one in IMAGE.\n" if words.first == 'from'}"
    rescue Errno::ENOENT
      raise Failure, "buildah is missing: script/setup dist"
    end
  end
end
