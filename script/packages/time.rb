# frozen_string_literal: true

require_relative "versions"

module Packages
  # The time stamp of everything in the packages, in seconds, so that the same sources give the same bytes: SOURCE_DATE_EPOCH; else the date of
  # this version in the changelog, which is the same before and after the release is committed; else the time of the last commit; in sources without git, that of the
  # changelog.
  def self.time
    Integer(ENV["SOURCE_DATE_EPOCH"] || released || committed || File.mtime(File.join(ROOT, "CHANGELOG.md")).to_i)
  end

  def self.released = Versions.new.date&.then { |date| Time.utc(date.year, date.month, date.day).to_i }
  private_class_method :released

  # The checkout may belong to another user.
  def self.committed
    run("git", "-c", "safe.directory=*", "log", "-1", "--format=%ct")
  rescue Failure
    nil
  end
  private_class_method :committed
end
