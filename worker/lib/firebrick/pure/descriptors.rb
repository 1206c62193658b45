# frozen_string_literal: true

require "socket"

module Firebrick
  module Pure
    # The ways in which bytes and descriptors travel on a link. Reading returns a pair: bytes (nil at the end), and the
    # numbers of the descriptors that came with them.
    module Descriptors
      # Returns whether this Ruby can send descriptors. TruffleRuby cannot.
      def self.possible?
        one, other = UNIXSocket.pair
        one.send_io(other)
        true
      rescue NotImplementedError
        false
      ensure
        [one, other].compact.each(&:close)
      end

      # Bytes read at a time.
      READ = 64 << 10

      # Closes this process's copy of a socket that has been sent.
      def self.release(socket)
        return socket.close unless RUBY_ENGINE == "jruby"

        require "firebrick/pure/close"
        # Nothing else may close it, and this object never uses its number again.
        socket.autoclose = false
        Close.close(socket.fileno)
      end

      # The methods of a link that can send descriptors.
      module Sending
        def descriptors?
          true
        end

        # Makes a socket for the app; its other end is to be sent.
        def stream
          Pair.new
        end
      end

      # The methods of a link whose frames come without descriptors.
      module PlainReading
        def read
          @socket.readpartial(READ)
        rescue EOFError
          nil
        end
      end

      # Sends descriptors in the same messages as the bytes (`SCM_RIGHTS`).
      class WithFrames
        include Sending

        attr_reader :socket

        def initialize(socket)
          @socket = socket
          @arrived = []
        end

        # Returns the received bytes; nil at the end.
        def read
          bytes, _, _, *control = @socket.recvmsg(READ, 0, 512, scm_rights: true)
          control.each { |message| keep(message) if message.cmsg_is?(:SOCKET, :RIGHTS) }
          bytes unless bytes.nil? || bytes.empty?
        end

        # Returns the number of the next descriptor.
        def take
          @arrived.shift
        end

        # Returns the numbers of all received descriptors.
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

      # Sends descriptors on a second socket, with one byte each, before the frame that they belong to.
      class Beside
        include Sending
        include PlainReading

        attr_reader :socket

        def initialize(socket, second)
          @socket = socket
          @second = second
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

      # Sends no descriptors: connects a socket to the front instead, before the frame that refers to it.
      class Connected
        include PlainReading

        attr_reader :socket

        # Yields to connect a socket that replaces a descriptor.
        def initialize(socket, &connect)
          @socket = socket
          @connect = connect
        end

        # Returns nothing, because the front sends no descriptors on such a link.
        def take; end

        def descriptors?
          false
        end

        def stream
          Connection.new(@connect)
        end

        # When the front has answered, it has the connection, and bytes written afterwards follow it.
        def write(bytes, connection)
          connection&.introduce
          @socket.write(bytes)
        end

        def close
          @socket.close
        end
      end

      # A socket for the app, and its other end, which is sent to the front.
      class Pair
        attr_reader :own, :sent

        def initialize
          @own, @sent = UNIXSocket.pair
        end

        # Makes the app read the end of the stream. Until the app closes the stream, a byte stays in its end
        # (StreamSocket).
        def close_input
          @sent.write("\0")
          @sent.shutdown(Socket::SHUT_WR)
        end

        # Closes this process's copy after the front has received it.
        def release
          Descriptors.release(@sent)
        end
      end

      # A socket for the app that is connected to the front, before its response begins, in the order of the frames.
      class Connection
        attr_reader :own

        def initialize(connect)
          @connect = connect
          @input = true
        end

        def sent
          self
        end

        def close_input
          @input = false
        end

        def introduce
          @own = @connect.call
          # The byte stays in the socket of a stream; JRuby 9.3 has no MSG_PEEK. The link shows a front that has gone.
          return @own.wait_readable unless @input
          return unless @own.recv(1).to_s.empty?

          raise IOError, "the front has gone"
        end

        def release; end
      end
    end
  end
end
