# frozen_string_literal: true

# Makes this Ruby behave like one whose sockets cannot send descriptors, such as TruffleRuby.

require "socket"

UNIXSocket.class_eval do
  %i[send_io recv_io sendmsg recvmsg].each do |name|
    define_method(name) { |*| raise NotImplementedError, "UNIXSocket##{name}" }
  end
end
