# frozen_string_literal: true

require "socket"

module Firebrick
  module Pure
    # How bytes and descriptors travel on a link. What is received is a pair: bytes (nil at the end), and the numbers of
    # the descriptors that came with them.
    module Descriptors
      # Bytes read at a time.
      READ = 64 << 10

      # Closes this process's copy of a socket that has been sent.
      def self.release(socket)
        return socket.close unless RUBY_ENGINE == "jruby"

        require "firebrick/pure/close"
        # Nothing else closes it, and its number is never used again by this object.
        socket.autoclose = false
        Close.close(socket.fileno)
      end

      # In the same messages as the bytes (`SCM_RIGHTS`).
      class WithFrames
        attr_reader :socket

        def initialize(socket)
          @socket = socket
          @arrived = []
        end

        # The bytes that have come; nil at the end.
        def read
          bytes, _, _, *control = @socket.recvmsg(READ, 0, 512, scm_rights: true)
          control.each { |message| keep(message) if message.cmsg_is?(:SOCKET, :RIGHTS) }
          bytes unless bytes.nil? || bytes.empty?
        end

        # The number of the next descriptor.
        def take
          @arrived.shift
        end

        # The numbers of all that have come.
        def take_all
          @arrived.shift(@arrived.length)
        end

        def write(bytes, descriptor)
          return @socket.write(bytes) unless descriptor

          sent = @socket.sendmsg(bytes, 0, nil, Socket::AncillaryData.unix_rights(descriptor))
          @socket.write(bytes.byteslice(sent..-1)) if sent < bytes.bytesize
        end

        def close
          @socket.close
        end

        private

        def keep(message)
          message.unix_rights.each do |io|
            io.autoclose = false
            @arrived << io.fileno
          end
        end
      end

      # On a second socket, with one byte each, and before the frame that they belong to.
      class Beside
        attr_reader :socket

        def initialize(socket, second)
          @socket = socket
          @second = second
        end

        def read
          @socket.readpartial(READ)
        rescue EOFError
          nil
        end

        def take
          @second.recv_io(nil)
        end

        def write(bytes, descriptor)
          @second.send_io(descriptor) if descriptor
          @socket.write(bytes)
        end

        def close
          [@socket, @second].each(&:close)
        end
      end
    end
  end
end
