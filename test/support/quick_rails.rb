# frozen_string_literal: true

# The environment of Rails apps whose gems are compiled once per run (compiled_gems.rb).

require "fileutils"
require "tmpdir"

module QuickRails
  @lock = Mutex.new

  # Returns the variables. Warnings of old gems are off: they say nothing about the server.
  def self.environment
    @lock.synchronize { @environment ||= { "COMPILED_GEMS" => folder, "RUBYOPT" => "-W0 -r#{File.expand_path('compiled_gems', __dir__)}" } }
  end

  # Returns a folder that exists as long as this process.
  def self.folder
    owner = Process.pid
    Dir.mktmpdir("firebrick-compiled").tap { |path| at_exit { FileUtils.remove_entry(path) if Process.pid == owner } }
  end
  private_class_method :folder
end
