# frozen_string_literal: true

require "ffi"

module Firebrick
  module Pure
    # `close`, and nothing but that. JRuby 10 ends a socket in both directions before it closes it, for all processes
    # that have it.
    module Close
      extend FFI::Library
      ffi_lib FFI::Library::LIBC
      attach_function :close, [:int], :int
    end
  end
end
