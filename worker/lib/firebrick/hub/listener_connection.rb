# frozen_string_literal: true

require "json"
require "socket"

module Firebrick
  module Hub
    # A connection by which a Listener gets messages (`server/protocols/cable/src/process_listener.rs`).
    #
    # Contract: any thread writes commands; one thread reads. After the end of the connection commands have no effect.
    class ListenerConnection
      # Bytes of a line of the server.
      LONGEST_LINE = 512

      def initialize(path)
        @socket = UNIXSocket.new(path)
        @writing = Mutex.new
        # The streams whose answers are still to come, in order; nil for an answer without a use.
        @asked = Queue.new
      end

      # Asks for a stream, from its place on if it has one.
      def listen(stream)
        json = JSON.generate({ stream: stream.name, epoch: stream.epoch, offset: stream.offset }.compact)
        command("LISTEN", json, stream)
      end

      def unlisten(name)
        command("UNLISTEN", name, nil)
      end

      # Returns the number of commands whose answers are still to come.
      def unanswered
        @asked.size
      end

      # Waits for what the server says: `[:message, name, payload, epoch, offset]`, `[:begun, stream, epoch, offset,
      # lost]` or `[:refused, why]`.
      def read
        loop do
          line = @socket.gets("\n", LONGEST_LINE) or raise EOFError, "the server has ended"
          word, *values = line.chomp.split(" ", 5)
          return message(*values) if word == "MESSAGE"

          stream = @asked.pop
          return [:refused, line.chomp.delete_prefix("ERROR ")] unless word == "OK"
          return [:begun, stream, values[0], Integer(values[1]), values[2]] if stream
        end
      end

      def close
        @socket.close
      rescue SystemCallError, IOError
        # It has ended before.
      end

      private

      def command(word, part, stream)
        @writing.synchronize do
          @asked << stream
          @socket.write("#{word} #{part.bytesize}\n".b << part.b)
        end
      rescue SystemCallError, IOError
        # The thread that reads finds out, and connects again.
      end

      def message(name, payload, epoch, offset)
        [:message, read_bytes(Integer(name)), read_bytes(Integer(payload)), epoch, Integer(offset)]
      end

      def read_bytes(count)
        bytes = @socket.read(count)
        raise EOFError, "the server has ended" unless bytes&.bytesize == count

        bytes.force_encoding(Encoding::UTF_8)
      end
    end
  end
end
