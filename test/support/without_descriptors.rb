# frozen_string_literal: true

# For a Ruby that is to behave as one whose sockets send no descriptors, such as TruffleRuby.

require "socket"

UNIXSocket.class_eval do
  %i[send_io recv_io sendmsg recvmsg].each do |name|
    define_method(name) { |*| raise NotImplementedError, "UNIXSocket##{name}" }
  end
end
