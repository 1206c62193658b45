# frozen_string_literal: true

# Runs the tests of a template and its workers, in place of the front.
#
#   ruby worker/native/tests/run.rb                 everything
#   ruby worker/native/tests/run.rb bodies -n /file/  files whose name contains the word; minitest's options follow
#
# RUBY           the Ruby under test (the one that runs this file)
# NATIVE         the built library, copied into the library folder first (the newest of the target folder)
# FIREBRICK_LIB  the library folder (worker/lib of this checkout)
# FIREBRICK_PURE 1: the worker in plain Ruby, worker/lib/firebrick/pure; pure.rb lists the differences
# TEST_FIBERS    workers serve with this many fibers (0)
# TEST_SLICE_US  and pre-empt fibers that compute for this many microseconds (0: never)
# TEST_AGAIN     1: up to five failed tests are run again, alone; the run fails only if one of them fails again

require "fileutils"

# Plugins of installed gems, such as Rails, change minitest's output.
ENV["MT_NO_PLUGINS"] ||= "1"

root = File.expand_path("../../..", __dir__)
target = ENV.fetch("CARGO_TARGET_DIR", File.join(root, "target"))
built = ENV["NATIVE"] || Dir[File.join(target, "{debug,release}", "libfirebrick_worker.{so,dylib}")].max_by { |f| File.mtime(f) }
lib = ENV.fetch("FIREBRICK_LIB", File.join(root, "worker/lib"))
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
