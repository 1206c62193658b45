# frozen_string_literal: true

require "digest"
require_relative "dependencies"

module Packages
  # The licences of all libraries in the packages: a list, and each text once, with the libraries that it belongs to.
  class Licences
    FILES = "{LICEN[CS]E,COPYING,COPYRIGHT,NOTICE,UNLICENSE}*"
    SYSTEM = { "mruby" => "/usr/share/doc/libmruby-dev/copyright" }.freeze

    def initialize(dependencies = Dependencies.new)
      @dependencies = dependencies
    end

    def to_s
      list = entries.map { |name, license, _| "#{name}: #{license}" }
      "Firebrick contains these libraries.\n\n#{list.join("\n")}\n#{texts.map { |text, names| "\n#{'=' * 79}\n#{names.join(', ')}\n\n#{text}\n" }.join}"
    end

    # Names of libraries whose sources have no text; the list has their licence.
    def without_text = entries.select { |_, _, found| found.empty? }.map(&:first)

    private

    # [name and version, licence, texts]
    def entries
      @entries ||= @dependencies.crates.map { |crate| ["#{crate.name} #{crate.version}", crate.license, in_crate(crate)] } +
                   @dependencies.libraries.map { |library| ["#{library.name} #{library.version}", library.license, in_library(library)] }
    end

    def texts
      entries.flat_map { |name, _, found| found.map { |text| [text, name] } }.group_by(&:first).transform_values { |pairs| pairs.map(&:last).uniq }
    end

    def in_crate(crate) = read(Dir[File.join(crate.folder, FILES)].sort)

    def in_library(library)
      return read([SYSTEM.fetch(library.name)]) unless library.within

      read(Dir[File.join(library.within.folder, "**", FILES)].sort)
    end

    def read(files) = files.select { |file| File.file?(file) }.map { |file| File.binread(file).force_encoding("UTF-8").scrub.gsub(/\r\n?/, "\n").strip }.uniq
  end
end
