# frozen_string_literal: true

require "date"
require_relative "build"

module Packages
  # The places that name the version of Firebrick, and the changelog. `script/release` sets them; test/release_test.rb compares them.
  class Versions
    NUMBER = /\d+\.\d+\.\d+(?:-(?:alpha|beta|rc)\.\d+)?/
    # Files of one place each: the text before the version, and after it.
    PLACES = {
      "worker/lib/firebrick/version.rb" => [/^ +VERSION = "(#{NUMBER})"$/],
      "Cargo.toml" => [/^\[workspace\.package\]\nversion = "(#{NUMBER})"$/],
      "deploy/chart/Chart.yaml" => [/^version: (#{NUMBER})$/, /^appVersion: (#{NUMBER})$/]
    }.freeze
    # Names of packages and images in documents. A name without its version's end (`firebrick-VERSION`) does not count.
    NAMED = /\bfirebrick[-_:](#{NUMBER})(?![\d.]*\d)/
    DOCUMENTS = %w[docs/*.md deploy/image/Containerfile README.md].freeze
    LOCK = "Cargo.lock"
    CHANGELOG = "CHANGELOG.md"

    def initialize(root = ROOT)
      @root = root
    end

    # [[file, version]]: every place, in the crates of the lock file and in documents, too.
    def found
      places = PLACES.flat_map { |file, patterns| patterns.map { |pattern| [file, read(file)[pattern, 1]] } }
      places + own_crates.map { |version| [LOCK, version] } + documents.flat_map { |file| read(file).scan(NAMED).map { |(version)| [file, version] } }
    end

    def current = read("worker/lib/firebrick/version.rb")[PLACES.values.first.first, 1]

    # The files that `set` and `date` change.
    def files = PLACES.keys + documents + [LOCK, CHANGELOG]

    def set(version)
      PLACES.each { |file, patterns| patterns.each { |pattern| change(file) { |text| replace(text, pattern, version) } } }
      change(LOCK) { |text| text.split(/(?=^\[\[package\]\])/).map { |part| part.include?("source = ") ? part : part.sub(/^version = "#{NUMBER}"/, "version = \"#{version}\"") }.join }
      documents.each { |file| change(file) { |text| replace(text, NAMED, version) } }
    end

    # The date of a version's section in the changelog; nil: it has none yet.
    def date(version = current)
      text = read(CHANGELOG)[/^## #{Regexp.escape(version)} \((\d{4}-\d\d-\d\d)\)$/, 1]
      text && Date.iso8601(text)
    end

    # Gives the section `VERSION (unreleased)` or `Unreleased` the version and the date. A section that has a date keeps it.
    def release(version, date)
      return if self.date(version)

      heading = /^## (?:#{Regexp.escape(version)} \(unreleased\)|Unreleased)$/
      text = read(CHANGELOG)
      section = text[/#{heading}\n(.*?)(?=^## |\z)/m, 1]
      raise Failure, "#{CHANGELOG} has no section \"## #{version} (unreleased)\" or \"## Unreleased\": say there what changes" unless section
      raise Failure, "#{CHANGELOG}: the section of #{version} is empty: say there what changes" unless section.match?(/^- /)

      change(CHANGELOG) { |old| old.sub(heading, "## #{version} (#{date.iso8601})") }
    end

    private

    def documents = Dir.chdir(@root) { DOCUMENTS.flat_map { |pattern| Dir[pattern].sort } }.select { |file| read(file).match?(NAMED) }

    def own_crates = read(LOCK).split(/^\[\[package\]\]/).drop(1).reject { |part| part.include?("source = ") }.map { |part| part[/^version = "(.*)"$/, 1] }

    def replace(text, pattern, version)
      text.gsub(pattern) { |found| found.sub(Regexp.last_match(1), version) }
    end

    def read(file) = File.read(File.join(@root, file))

    def change(file)
      text = read(file)
      changed = yield text
      File.write(File.join(@root, file), changed) unless changed == text
    end
  end
end
