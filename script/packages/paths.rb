# frozen_string_literal: true

require_relative "build"

module Packages
  # The names that replace this machine's folders in the program, in its symbols for debuggers, and in messages: with them the program has the
  # same bytes wherever it is built. cargo leaves these flags out of its names for symbols.
  module Paths
    def self.rust = folders.map { |folder, name| "--remap-path-prefix=#{folder}=#{name}" }

    # For GCC and Clang.
    def self.c = folders.map { |folder, name| "-ffile-prefix-map=#{folder}=#{name}" }

    # The last that fits counts, so the longest come last. A folder with a space cannot be named in RUSTFLAGS.
    def self.folders
      target = File.expand_path(ENV.fetch("CARGO_TARGET_DIR", "target"), ROOT)
      cargo = ENV.fetch("CARGO_HOME") { File.join(Dir.home, ".cargo") }
      [[ROOT, "/firebrick"], [cargo, "/cargo"], [target, "/target"]].reject { |folder, _| folder.match?(/\s/) }
                                                                    .sort_by { |folder, _| folder.length }
    end
    private_class_method :folders
  end
end
