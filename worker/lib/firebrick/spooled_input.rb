# frozen_string_literal: true

module Firebrick
  # Extends the `rack.input` of a request with a large body, which is an unlinked File, with the methods of a Tempfile.
  # Other servers pass a Tempfile, and apps and libraries call its methods.
  module SpooledInput
    # Whether a file can be opened by its descriptor, by this process and programs that it starts. Linux supports that.
    BY_DESCRIPTOR = File.directory?("/proc/self/fd")

    # Returns a path that can be opened until the request ends; nil where the system has none.
    def path
      "/proc/#{Process.pid}/fd/#{fileno}" if BY_DESCRIPTOR
    end
    alias to_path path

    def length
      size
    end

    # Does nothing: the file is unlinked already.
    def unlink
      true
    end
    alias delete unlink

    def close!
      close
    end
  end
end
