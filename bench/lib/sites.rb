# frozen_string_literal: true

require "fileutils"

module Bench
  # Directories of files for the scenarios without an app, created on demand.
  module Sites
    LINE = "<p>The quick brown fox jumps over the lazy dog.</p>\n"
    # Also the body of apps/page.
    PAGE = "<!doctype html>\n<title>Page</title>\n#{LINE * 80}"[0, 3_936].freeze
    LARGE_PIECE = ("0123456789abcdef" * 65_536).freeze
    LARGE_PIECES = 100
    # 100 pieces of 1 MiB; compared with the served file.
    LARGE_SHA256 = "5bd62fc9bf2d86651969d44c6a68d4cb2be54a240353ad78465bee731da7cd64"
    FILES = 10_000
    FOLDERS = 100

    module_function

    # The directory of the site of that name below `dir`.
    def folder(name, dir)
      path = File.join(dir, "site-#{name}")
      return path if File.directory?(path)

      Dir.mkdir(path)
      case name
      when "page" then File.write(File.join(path, "page.html"), PAGE)
      when "large" then File.open(File.join(path, "large.bin"), "wb") { |file| LARGE_PIECES.times { file.write(LARGE_PIECE) } }
      when "many" then many(path)
      end
      path
    end

    def many(path)
      FOLDERS.times { |folder| Dir.mkdir(File.join(path, format("%02d", folder))) }
      FILES.times { |index| File.write(File.join(path, many_path(index)), many_body(index)) }
    end

    # The path of a file of the site "many"; ../wrk.lua uses the same scheme.
    def many_path(index) = format("/%02d/%d.html", index % FOLDERS, index)

    # 1 to 8 KiB, evenly distributed.
    def many_body(index) = "<!doctype html>\n<title>#{index}</title>\n#{LINE * 160}"[0, 1_024 + (index * 7_919 % 7_169)]
  end
end
