# frozen_string_literal: true

require "ffi"

module Firebrick
  module Pure
    # Plain close(2). JRuby 10 shuts a socket down in both directions before it closes it, which affects all processes
    # that share it.
    module Close
      extend FFI::Library
      ffi_lib FFI::Library::LIBC
      attach_function :close, [:int], :int
    end
  end
end
