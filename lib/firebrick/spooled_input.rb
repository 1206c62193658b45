# frozen_string_literal: true

module Firebrick
  # What the `rack.input` of a request with a large body has beside the methods of a File. Its file has no name any
  # more; apps and libraries ask for what the Tempfile has that other servers give them.
  module SpooledInput
    # Whether a file has a path by its descriptor, for this process and for programs that it starts. Linux has it.
    BY_DESCRIPTOR = File.directory?("/proc/self/fd")

    # A path that can be opened until the request ends; nil where the system has none.
    def path
      "/proc/#{Process.pid}/fd/#{fileno}" if BY_DESCRIPTOR
    end
    alias to_path path

    def length
      size
    end

    # It has been done.
    def unlink
      true
    end
    alias delete unlink

    def close!
      close
    end
  end
end
