# frozen_string_literal: true

require_relative "../lib/program"

# Finds a built Firebrick for tests: FIREBRICK, or the newest one in target/.
module Built
  ROOT = Bench::Program::ROOT
  BINARY = Bench::Program.path("dist", "release", "debug").then { |path| path if File.executable?(path) }

  def need_firebrick
    skip "no firebrick: build it, or set FIREBRICK to its path" unless BINARY
  end
end
