# frozen_string_literal: true

# Finds a built Firebrick for tests: FIREBRICK, or the newest one in target/.
module Built
  ROOT = File.expand_path("../..", __dir__)
  BINARY = ENV["FIREBRICK"] || Dir[File.join(ROOT, "target/{dist,release,debug}/firebrick")].max_by { |path| File.mtime(path) }

  def need_firebrick
    skip "no firebrick: build it, or set FIREBRICK to its path" unless BINARY
  end
end
