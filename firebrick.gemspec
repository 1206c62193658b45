# frozen_string_literal: true

require_relative "worker/lib/firebrick/version"

Gem::Specification.new do |spec|
  spec.name = "firebrick"
  spec.version = Firebrick::VERSION
  spec.summary = "A web server for Ruby people"
  spec.description = "Serves Rack apps, fast, fair and safe, with nothing in front of it: a Rust front that speaks " \
                     "HTTP, and CRuby workers that are forked from one preloaded template."
  spec.authors = ["The Firebrick authors"]
  spec.homepage = "https://github.com/firebrick-rb/firebrick"
  spec.license = "MIT"
  spec.required_ruby_version = ">= 3.1"
  spec.metadata = { "rubygems_mfa_required" => "true", "source_code_uri" => spec.homepage }

  sources = "{server,handlers,measure,worker/native}/**/*.{rs,toml,rb,c,h,html,css,js,lua}"
  build = "{Cargo.{toml,lock},.cargo/config.toml,rust-toolchain.toml}"
  papers = "{README,LICENSE,CHANGELOG,ARCHITECTURE,CONTRIBUTING,SECURITY}*"
  spec.files = Dir.chdir(__dir__) do
    Dir[build, sources, "worker/lib/**/*.rb", "exe/*", "docs/**/*", papers]
      .select { |file| File.file?(file) }.reject { |file| file.start_with?("worker/native/tests/") }.sort
  end
  spec.require_paths = ["worker/lib"]
  spec.bindir = "exe"
  spec.executables = ["firebrick"]
  spec.extensions = ["worker/native/extconf.rb"]
  spec.add_dependency "rack", ">= 2.2", "< 4"
end
