# frozen_string_literal: true

require "rbconfig"

# The native part of a worker, for the Ruby that runs. Packages hold one for each version of Ruby's ABI, in folders
# of their own (3.1/native.so); what is compiled where it runs lies beside this file (native.so) and takes precedence.
# Instead of it there is the same in plain Ruby, for a Ruby without native extensions and for FIREBRICK_PURE=1.
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
