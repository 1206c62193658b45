# frozen_string_literal: true

# A Rails app as `rails new` generates it, with the files of test/apps/rails added. It is generated once per run.

require "fileutils"
require "open3"
require "tmpdir"
require "support/interruption"
require "support/quick_rails"

module RailsApp
  SOURCE = File.expand_path("../apps/rails", __dir__)
  # Parts that the tests do not need: plugins that Debian does not have, and an asset compiler.
  SKIPPED = %w[--skip-bundle --skip-git --skip-javascript --skip-bootsnap].freeze
  OLD = %w[--skip-spring --skip-listen --skip-webpack-install].freeze
  # Rails itself has an asset pipeline before 7.
  NEW = %w[--asset-pipeline=propshaft].freeze
  ENVIRONMENT = { **QuickRails.environment, "SECRET_KEY_BASE" => "x" * 64, "BUNDLE_APP_CONFIG" => "/nonexistent", "BUNDLE_GEMFILE" => nil,
                                            "RAILS_LOG_TO_STDOUT" => "1", "RAILS_SERVE_STATIC_FILES" => nil, "IRBRC" => "/dev/null" }.freeze

  # Paths that the app writes while it runs.
  LEAVES = %w[Gemfile.lock db/ storage/ tmp/ log/].freeze

  @lock = Mutex.new

  class << self
    # Returns "6.1.7"; nil where Rails is not installed.
    def version
      @version ||= begin
        out, status = Open3.capture2e({ "RUBYOPT" => "-W0" }, "rails", "--version")
        status.success? ? out[/\d[\d.]*/] : :none
      rescue Errno::ENOENT
        :none
      end
      @version unless @version == :none
    end

    # Returns path => content. +gems+ are added to its Gemfile.
    def files(*gems)
      generated = @lock.synchronize { @files ||= generate }
      assets = old? ? [] : ["propshaft"]
      generated.merge("Gemfile" => ["rails", "sqlite3", *assets, *gems].map { |name| "gem #{name.inspect}\n" }.join)
    end

    # Returns options of a server that runs it.
    def options(*gems, files: {}, env: {}, **others)
      { files: self.files(*gems).merge(files), env: ENVIRONMENT.merge(env), leaves: LEAVES, **others }
    end

    private

    def old? = version < "7"

    def generate
      Dir.mktmpdir("firebrick-rails") do |folder|
        flags = SKIPPED + (old? ? OLD : NEW)
        out, status = Open3.capture2e({ "RUBYOPT" => "-W0" }, "rails", "new", "blog", *flags, chdir: folder)
        raise out unless status.success?

        read(File.join(folder, "blog")).merge(read(SOURCE)).then { |files| adapted(files) }
      end
    end

    def read(folder)
      names = Dir.glob("**/*", File::FNM_DOTMATCH, base: folder).select { |file| File.file?(File.join(folder, file)) }
      names.to_h { |file| [file, File.binread(File.join(folder, file))] }
    end

    # Removes the gems that Debian does not have, or that a test of the server does not need.
    def adapted(files)
      development = files["config/environments/development.rb"].gsub(/^.*EventedFileUpdateChecker.*$/, "")
      files.merge("config/environments/development.rb" => development).except("Gemfile.lock", "config/credentials.yml.enc", "config/master.key")
    end
  end
end
