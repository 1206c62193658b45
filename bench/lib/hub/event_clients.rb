# frozen_string_literal: true

$LOAD_PATH.unshift(File.expand_path("../../../test", __dir__))
require "minitest"
require "support/clock"
require "support/http2_client"

module Bench
  module Hub
    # Listeners on shared HTTP/2 connections (RFC 9113), without TLS. One thread reads all of them and counts events; windows are so large that the server
    # never waits for one.
    class EventClients
      include Clock

      PATIENCE = 60
      # Listeners that are opened before the answers are read.
      BURST = 500

      attr_reader :received

      # server:: with `port` and `path`
      def initialize(server, count, connections)
        @received = 0
        @answered = 0
        @clients = Array.new(connections) { Http2Client.new(["127.0.0.1", server.port]) }
        @rest = @clients.to_h { |client| [client.socket, +"".b] }
        @reading = Thread.new { read until @rest.empty? }
        listen(server.path, count)
      end

      # Waits until so many events have come in all.
      def wait(events)
        stop = now + PATIENCE
        sleep 0.002 until @received >= events || now > stop
      end

      def close
        @reading.kill
        @clients.each(&:close)
      end

      private

      def listen(path, count)
        count.times do |number|
          @clients[number % @clients.size].request(path, headers: { "accept" => "text/event-stream" })
          wait_for_answers(number + 1) if (number % BURST).zero?
        end
        wait_for_answers(count)
      end

      def wait_for_answers(count)
        stop = now + PATIENCE
        sleep 0.002 until @answered >= count || now > stop
        raise Failure, "#{@answered} of #{count} listeners were answered within #{PATIENCE} s" if @answered < count
      end

      def read
        IO.select(@rest.keys, nil, nil, 0.1)&.first&.each do |socket|
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
          @rest.delete(socket)
        end
      end

      # Each listener gets one HEADERS frame; its events have one line of data each.
      def take(type, payload)
        @answered += 1 if type == Http2Client::TYPES[:headers]
        @received += payload.scan(/^data: ?m/).size if type == Http2Client::TYPES[:data]
      end
    end
  end
end
