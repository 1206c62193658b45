# frozen_string_literal: true

require "openssl"
require "socket"

module Bench
  module Hub
    # Listeners on shared HTTP/2 connections (RFC 9113), without TLS. One thread reads all of them and counts events; windows are so large that the server
    # never waits for one.
    class EventClients
      PREFACE = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".b
      # SETTINGS_INITIAL_WINDOW_SIZE.
      INITIAL_WINDOW = 4
      WINDOW = (1 << 31) - 1
      HEADERS = 1
      SETTINGS = 4
      WINDOW_UPDATE = 8
      # END_STREAM and END_HEADERS.
      WHOLE = 0x5
      PATIENCE = 60
      # Listeners that are opened before the answers are read.
      BURST = 500

      attr_reader :received

      # server:: with `port` and `path`
      def initialize(server, count, connections)
        @server = server
        @received = 0
        @answered = 0
        @rest = {}
        @sockets = Array.new(connections) { connect }
        @reading = Thread.new { read until @sockets.empty? }
        listen(count)
      end

      # Waits until so many events have come in all.
      def wait(events)
        stop = now + PATIENCE
        sleep 0.002 until @received >= events || now > stop
      end

      def close
        @reading.kill
        @sockets.each(&:close)
      end

      private

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

      def connect
        socket = TCPSocket.new("127.0.0.1", @server.port)
        settings = frame(SETTINGS, 0, 0, [INITIAL_WINDOW, WINDOW].pack("nN"))
        socket.write(PREFACE + settings + frame(WINDOW_UPDATE, 0, 0, [WINDOW - 65_535].pack("N")))
        @rest[socket] = +"".b
        socket
      end

      def listen(count)
        block = [[":method", "GET"], [":scheme", "http"], [":authority", "127.0.0.1"], [":path", @server.path], ["accept", "text/event-stream"]]
                .map { |pair| literal(*pair) }.join
        count.times do |number|
          socket = @sockets[number % @sockets.size]
          socket.write(frame(HEADERS, WHOLE, (2 * (number / @sockets.size)) + 1, block))
          wait_for_answers(number + 1) if (number % BURST).zero?
        end
        wait_for_answers(count)
      end

      def wait_for_answers(count)
        stop = now + PATIENCE
        sleep 0.002 until @answered >= count || now > stop
        raise Failure, "#{@answered} of #{count} listeners were answered within #{PATIENCE} s" if @answered < count
      end

      # A field that is not indexed (RFC 7541, section 6.2.2).
      def literal(name, value) = "\x00".b + text(name) + text(value)

      def text(text)
        size = text.bytesize
        prefix = size < 127 ? [size].pack("C") : [127, *seven_bits(size - 127)].pack("C*")
        prefix + text.b
      end

      def seven_bits(number)
        number < 128 ? [number] : [(number % 128) + 128, *seven_bits(number / 128)]
      end

      def frame(type, flags, stream, payload)
        [payload.bytesize].pack("N").byteslice(1, 3) + [type, flags, stream].pack("CCN") + payload.b
      end

      def read
        IO.select(@sockets, nil, nil, 0.1)&.first&.each do |socket|
          bytes = @rest[socket] << socket.read_nonblock(1 << 16)
          at = 0
          while bytes.bytesize >= at + 9
            length = (bytes.getbyte(at) << 16) + bytes.byteslice(at + 1, 2).unpack1("n")
            break if bytes.bytesize < at + 9 + length

            take(bytes.getbyte(at + 3), bytes.byteslice(at + 9, length))
            at += 9 + length
          end
          bytes.replace(bytes.byteslice(at..))
        rescue EOFError
          @sockets.delete(socket)
        end
      end

      # Each listener gets one HEADERS frame; its events have one line of data each.
      def take(type, payload)
        @answered += 1 if type == HEADERS
        @received += payload.scan(/^data: ?m/).size if type.zero?
      end
    end
  end
end
