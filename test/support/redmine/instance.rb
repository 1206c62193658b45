# frozen_string_literal: true

# Redmine as Debian packages it, in its own folder with its own database, so that nothing below /usr/share or /var is
# written. The package need not be configured: only its files and the gems that it depends on are used.

require "fileutils"
require "open3"
require "tmpdir"
require "support/interruption"

module Redmine
  SOURCE = "/usr/share/redmine"

  # Checks for Debian 12's version, for which seed.rb is written.
  def self.installed?
    version = "#{SOURCE}/lib/redmine/version.rb"
    File.exist?(version) && File.read(version).match?(/MAJOR = 5$/)
  end

  class Instance
    # Installed commands of other programs may name gems that this app does not have. Where two versions of Bundler are installed, only
    # Debian's own finds Debian's gems when it resolves a Gemfile.
    ENVIRONMENT = { "RAILS_ENV" => "production", "RUBYOPT" => "-W0", "BUNDLE_GEMFILE" => nil, "BUNDLE_APP_CONFIG" => "/nonexistent", "RACK_ENV" => nil, "APP_ENV" => nil,
                    "REDMINE_INSTANCE" => nil, "WEB_CONCURRENCY" => nil, "PORT" => nil, "RAILS_MAX_THREADS" => nil, "RAILS_MIN_THREADS" => nil }.freeze
    SEED = File.expand_path("seed.rb", __dir__)
    EXAMPLE = File.expand_path("../../../examples/redmine", __dir__)

    FONT = "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf"

    # The temporary folder, and Redmine's folder in it.
    attr_reader :base, :dir

    # database:: the contents of database.yml, key => value; by default SQLite's file
    def initialize(database = nil)
      @base = File.realpath(Dir.mktmpdir("firebrick-redmine"))
      Interruption.own(@base)
      @dir = File.join(@base, "share/redmine")
      FileUtils.mkdir_p(File.join(@base, "share"))
      @database = database
    end

    # Copies the package, makes the database and fills it.
    def build
      FileUtils.cp_r(SOURCE, File.join(@base, "share"), preserve: true)
      # Some files of public/ are symbolic links to other packages, relative to /usr/share.
      %w[javascript ruby-jquery-rails].each { |package| File.symlink("/usr/share/#{package}", File.join(@base, "share", package)) }
      %w[instances config/database.yml Gemfile.lock].each { |name| FileUtils.rm_rf(File.join(@dir, name)) }
      # The Gemfile reads the database's adapter from the package's own configuration.
      gemfile = File.read("#{SOURCE}/Gemfile").sub("Dir['/usr/share/redmine/", "Dir[File.expand_path(__dir__) + '/")
      File.write(File.join(@dir, "Gemfile"), gemfile)
      %w[config files log tmp public].each { |name| FileUtils.mkdir_p(File.join(home, name)) }
      File.write(File.join(home, "config/secret_key.txt"), "0123456789abcdef" * 4)
      # ImageMagick alone has no font for the chart of a project.
      File.write(File.join(home, "config/configuration.yml"), "default:\n  minimagick_font_path: #{FONT}\n")
      configure
      # Without a network, and without writing anywhere else.
      run({ "BUNDLER_VERSION" => debian_bundler }, "bundle", "install", "--local", "--quiet")
      run({}, "ruby", "bin/rails", "runner", SEED)
      self
    end

    # Another instance with the same content, whose pages are the same.
    def copy(database = @database)
      Instance.new(database).tap do |other|
        FileUtils.cp_r(File.join(@base, "share"), other.base, preserve: true)
        other.configure
      end
    end

    def configure
      database = @database || { "adapter" => "sqlite3", "database" => File.join(home, "redmine.sqlite3"), "timeout" => 10_000 }
      File.write(File.join(home, "config/database.yml"), "production:\n#{database.map { |key, value| "  #{key}: #{value}\n" }.join}")
    end

    # Adds initializers of examples/redmine.
    def add_examples(*names)
      FileUtils.cp(names.map { |name| File.join(EXAMPLE, name) }, File.join(@dir, "config/initializers"))
    end

    def log
      path = File.join(home, "log/production.log")
      File.exist?(path) ? File.read(path) : ""
    end

    def remove
      FileUtils.remove_entry(@base) if File.exist?(@base)
      Interruption.disown(@base)
    end

    private

    # Files, log and configuration: the only folder that the app writes to.
    def home
      File.join(@dir, "instances/default")
    end

    def debian_bundler
      version, status = Open3.capture2("dpkg-query", "--showformat=${Version}", "--show", "ruby-bundler")
      version[/\A[\d.]+/] if status.success?
    end

    def run(env, *command)
      out, status = Open3.capture2e(ENVIRONMENT.merge(env), *command, chdir: @dir)
      raise "#{command.join(' ')}: #{out}" unless status.success?
    end
  end
end
