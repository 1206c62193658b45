# frozen_string_literal: true

require "rbconfig"

# Loads the native part of a worker for the running Ruby. Packages contain one for each version of Ruby's ABI, in
# separate folders (3.1/native.so). A library compiled on this machine is next to this file (native.so) and takes
# precedence. Rubies without native extensions, and FIREBRICK_PURE=1, use the version in plain Ruby instead.
compiled_here = "firebrick/native.#{RbConfig::CONFIG['DLEXT']}"
packed = Dir[File.join(__dir__, "[0-9]*.[0-9]*/native.*")].map { |file| File.basename(File.dirname(file)) }.sort

if RUBY_ENGINE != "ruby" || ENV["FIREBRICK_PURE"] == "1" || defined?(Firebrick::Pure::Worker)
  require "firebrick/pure/native"
elsif packed.empty? || File.file?(File.expand_path("../#{compiled_here}", __dir__))
  require compiled_here
elsif packed.include?(RUBY_VERSION[/\A\d+\.\d+/])
  require "firebrick/#{RUBY_VERSION[/\A\d+\.\d+/]}/native"
else
  raise LoadError, "this package of Firebrick is for Ruby #{packed.join(', ')}, and this is Ruby #{RUBY_VERSION}. " \
                   "The gem for platform \"ruby\" is compiled for the Ruby at hand and needs Rust: " \
                   "gem install firebrick --platform ruby"
end
