# frozen_string_literal: true

require "rbconfig"

# Loads the native part of a worker for the running Ruby. Packages contain one for each version of Ruby's ABI, in
# separate folders (3.1/native.so). A library compiled on this machine is next to this file (native.so), or in the gem's
# folder of extensions, and takes precedence. The version in plain Ruby is used instead by Rubies without native
# extensions, with FIREBRICK_PURE=1, and where there is no library for this Ruby: a package serves every Ruby, and
# nothing is compiled unasked.
compiled_here = "firebrick/native.#{RbConfig::CONFIG['DLEXT']}"
packed = Dir[File.join(__dir__, "[0-9]*.[0-9]*/native.*")].map { |file| File.basename(File.dirname(file)) }.sort
missing = nil

if RUBY_ENGINE != "ruby" || ENV["FIREBRICK_PURE"] == "1" || defined?(Firebrick::Pure::Worker)
  require "firebrick/pure/native"
elsif packed.empty? || File.file?(File.expand_path("../#{compiled_here}", __dir__))
  begin
    require compiled_here
  rescue LoadError => e
    raise unless e.path == compiled_here

    missing = "there is no native part of the worker beside #{__dir__}"
  end
elsif packed.include?(RUBY_VERSION[/\A\d+\.\d+/])
  require "firebrick/#{RUBY_VERSION[/\A\d+\.\d+/]}/native"
else
  missing = "this package has a native part for workers of Ruby #{packed.join(', ')}, and this is Ruby #{RUBY_VERSION}"
end

require "firebrick/pure/native" if missing

module Firebrick
  # How to get the native part.
  NATIVE_ADVICE = "with Rust, `gem install firebrick --platform ruby` compiles one"
end
# Why it is missing; nil where it is not, or is not wanted.
Firebrick::NATIVE_MISSING = missing
