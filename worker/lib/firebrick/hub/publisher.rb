# frozen_string_literal: true

require "json"
require "socket"

module Firebrick
  module Hub
    # There is no server that takes messages.
    class Unreachable < StandardError
      def initialize(path, error)
        super("cannot publish on #{path}: #{error.message}. Is the server running, with hub.path in its " \
              "firebrick.toml? Another path of its socket (hub.socket) belongs into config/cable.yml, too (socket)")
      end
    end

    # The front has refused a message.
    class Refused < StandardError
    end

    # Publishes messages on the front's Unix socket.
    #
    # Contract: `publish` returns when the message has its number, so the messages of a process keep their order.
    # Threads take turns. A process that was forked connects by itself. While the server is replaced by an upgrade, the
    # message waits up to PATIENCE; a process that has never reached a server waits up to IMPATIENCE.
    class Publisher
      DEFAULT_SOCKET = "tmp/firebrick-hub.sock"
      PATIENCE = 5
      IMPATIENCE = 0.5
      PAUSE = 0.05
      # Bytes of an answer; that about the position in many streams is the longest.
      LONGEST = 1 << 20
      # The front is not there, or has ended.
      GONE = [Errno::ENOENT, Errno::ECONNREFUSED, Errno::ECONNRESET, Errno::EPIPE, EOFError].freeze

      # Returns the path of the socket: the given one, that of the server of this process, or the default one.
      def self.path(given = nil)
        root = ::Rails.root if defined?(::Rails) && ::Rails.respond_to?(:root)
        given || ENV["FIREBRICK_HUB"] || File.join(*[root&.to_s, DEFAULT_SOCKET].compact)
      end

      def initialize(path)
        @path = path
        @lock = Mutex.new
        @reached = false
      end

      # Returns epoch and offset of the message. The client with the session `except` does not get it.
      def publish(stream, payload, except: nil)
        text = ["PUBLISH", stream.bytesize, payload.bytesize, except].compact.join(" ").b << "\n"
        text << stream.b << payload.b
        epoch, offset = @lock.synchronize { read(exchange(text)) }
        [epoch, Integer(offset)]
      end

      # Publishes messages in the form of AnyCable's gem. Returns their number.
      def broadcast(json)
        text = "BROADCAST #{json.bytesize}\n".b << json.b
        Integer(@lock.synchronize { read(exchange(text)) }.first)
      end

      # Returns the id of an event at which these streams are now.
      def position(streams)
        json = JSON.generate(streams)
        text = "POSITION #{json.bytesize}\n".b << json.b
        @lock.synchronize { read(exchange(text)) }.first
      end

      # Returns the members of a stream, by id with their info.
      def presence(stream)
        text = "PRESENCE #{stream.bytesize}\n".b << stream.b
        JSON.parse(@lock.synchronize { exchange(text) { |line| read_bytes(Integer(read(line).first)) } })
      end

      def close
        @lock.synchronize { disconnect }
      end

      private

      # Returns the first line of the answer, or what the block makes of it.
      def exchange(text)
        deadline = now + (@reached ? PATIENCE : IMPATIENCE)
        begin
          line = ask(text)
          block_given? ? yield(line) : line
        rescue EOFError, SystemCallError => e
          disconnect
          raise Unreachable.new(@path, e) unless GONE.include?(e.class) && now < deadline

          sleep PAUSE
          retry
        end
      end

      def ask(text)
        connect
        @socket.write(text)
        @socket.gets("\n", LONGEST) || raise(EOFError, "the server has ended")
      end

      # The server may end in the middle of its answer.
      def read_bytes(count)
        bytes = @socket.read(count)
        bytes&.bytesize == count ? bytes : raise(EOFError, "the server has ended")
      end

      def connect
        return if @socket && @pid == Process.pid

        @socket = UNIXSocket.new(@path)
        @pid = Process.pid
        @reached = true
      end

      # A child's copy of the socket is the parent's, too.
      def disconnect
        @socket&.close
        @socket = nil
      end

      def read(line)
        word, *values = line.chomp.split(" ", 3)
        return values if word == "OK"

        # After a mistake in the first line the front closes the connection.
        disconnect
        raise Refused, line.chomp.delete_prefix("ERROR ")
      end

      def now
        Process.clock_gettime(Process::CLOCK_MONOTONIC)
      end
    end
  end
end
