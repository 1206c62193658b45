# frozen_string_literal: true

# Deploys as Capistrano makes them: a folder of releases, and a link to the current one.

require "fileutils"
require "tmpdir"

module Releases
  # A folder for releases, removed afterwards.
  def released
    root = File.realpath(Dir.mktmpdir("firebrick-releases"))
    yield root
  ensure
    FileUtils.rm_rf(root)
  end

  # Writes the files of a release: path => content.
  def write_release(root, number, files)
    files.each do |name, content|
      path = File.join(root, "releases", number, name)
      FileUtils.mkdir_p(File.dirname(path))
      File.write(path, content)
    end
  end

  def link(root, number)
    File.symlink("releases/#{number}", File.join(root, "next"))
    File.rename(File.join(root, "next"), File.join(root, "current"))
  end
end
