# frozen_string_literal: true

require_relative "errors"

module Firebrick
  # Finds the `firebrick` program: in an installed gem or package, or in a checkout.
  module Binary
    LIB = File.expand_path("..", __dir__)
    # The folder of the gem or the checkout, with these files in worker/lib, or of a package, with these files in lib.
    ROOT = LIB.delete_suffix("/lib").delete_suffix("/worker")
    LOCATIONS = %w[libexec/firebrick bin/firebrick target/release/firebrick target/debug/firebrick].freeze

    module_function

    MISSING = "the program is missing from #{ROOT}/libexec; try: gem pristine firebrick"

    # Returns the program's path. The variable FIREBRICK_PROGRAM takes precedence.
    def find
      named = ENV.fetch("FIREBRICK_PROGRAM", nil)
      return named if named && !named.empty?

      found = LOCATIONS.map { |location| File.join(ROOT, location) }.find { |file| File.executable?(file) }
      found || raise(Error, MISSING)
    end

    def path
      find
    rescue Error => e
      abort("firebrick: #{e.message}")
    end

    # Replaces this process with the server. +launcher+ is the script that the user typed: `firebrick upgrade` runs it
    # again with the same arguments, and so finds a newer version of the gem.
    def exec(*arguments, launcher: nil)
      launcher &&= as_typed(launcher)
      Kernel.exec(environment.merge("FIREBRICK_LAUNCHER" => launcher), [path, "firebrick"], *arguments)
    end

    # Returns the variables with which the program finds these files and this Ruby.
    def environment
      { "FIREBRICK_LIB" => LIB, "FIREBRICK_LAUNCHER_RUBY" => other_ruby }
    end

    # Returns this Ruby's path, or nil if it is `ruby` of the PATH, which version managers change with a release.
    def other_ruby
      programs = ENV.fetch("PATH", "").split(File::PATH_SEPARATOR).map { |folder| File.join(folder, "ruby") }
      usual = programs.find { |file| File.file?(file) && File.executable?(file) }
      RbConfig.ruby unless usual && File.identical?(usual, RbConfig.ruby)
    end

    # Returns an absolute path with its symbolic links unresolved, because they may point elsewhere later.
    def as_typed(path)
      here = ENV["PWD"] if ENV["PWD"] && File.identical?(ENV["PWD"], ".")
      File.expand_path(path, here || Dir.pwd)
    end
  end
end
