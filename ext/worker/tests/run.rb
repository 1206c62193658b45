# frozen_string_literal: true

# Asks a template and its workers questions, in the place of the front.
#
#   ruby ext/worker/tests/run.rb                 everything
#   ruby ext/worker/tests/run.rb bodies -n /file/  files whose name contains the word; minitest's options follow
#
# RUBY           the Ruby under test (the one that runs this file)
# NATIVE         the built library, copied into the library folder first (the newest of the target folder)
# FIREBRICK_LIB  the library folder (lib/ of this checkout)
# FIREBRICK_PURE 1: the worker in plain Ruby, lib/firebrick/pure; what it does in another way is in pure.rb
# TEST_FIBERS    workers serve with so many fibers (0)
# TEST_SLICE_US  and pre-empt those that compute for so many microseconds (0: none)
# TEST_AGAIN     1: up to five tests that fail are run once more, alone; only what fails then as well fails the run

require "fileutils"

# Those of installed gems, such as Rails, print in their own way.
ENV["MT_NO_PLUGINS"] ||= "1"

root = File.expand_path("../../..", __dir__)
target = ENV.fetch("CARGO_TARGET_DIR", File.join(root, "target"))
built = ENV["NATIVE"] || Dir[File.join(target, "{debug,release}", "libfirebrick_worker.{so,dylib}")].max_by { |f| File.mtime(f) }
lib = ENV.fetch("FIREBRICK_LIB", File.join(root, "lib"))
native = File.join(lib, "firebrick", "native.#{RbConfig::CONFIG['DLEXT']}")
if built && !(File.exist?(native) && FileUtils.identical?(built, native))
  FileUtils.cp(built, "#{native}.new")
  File.rename("#{native}.new", native)
end

require_relative "case"
require_relative "../../../test/support/again"
words = []
words << ARGV.shift while ARGV.first && !ARGV.first.start_with?("-")
files = Dir[File.join(__dir__, "*_test.rb")]
files.select! { |file| words.any? { |word| File.basename(file).include?(word) } } unless words.empty?
abort "no test file matches #{words.join(' ')}" if files.empty?
files.each { |file| require file }
exit(ENV["TEST_AGAIN"] == "1" ? Again.run(ARGV, RbConfig.ruby, File.expand_path(__FILE__)) : Minitest.run(ARGV))
