# frozen_string_literal: true

require "io/wait"
require "socket"

module Bench
  module Deploys
    # Failures by kind in a document of `firebrick bench`.
    def self.errors_in(document) = document.dig("outcome", "errors").except("texts", "unsent").select { |_, count| count.positive? }

    # Prints the number of requests that were due but unsent at the end of the load. They are not failures, but many of them mean a server that has
    # stalled.
    def self.say_unsent(*documents)
      unsent = documents.sum { |document| document.dig("outcome", "errors", "unsent") }
      puts "  #{unsent} more were due when the load was ended, and not sent yet" if unsent.positive?
    end

    # A client that repeats one kind of exchange in its own thread, and counts faults by their text.
    class Client
      attr_reader :completed, :wrong

      # pause: seconds between two exchanges.
      def initialize(port, pause: 0.1)
        @port = port
        @pause = pause
        @completed = 0
        @wrong = Hash.new(0)
      end

      def start
        @thread = Thread.new { run }
        self
      end

      def stop
        @stopped = true
        @thread.join
        self
      end

      private

      def run
        until @stopped
          begin
            exchange
            @completed += 1
          rescue SystemCallError, IOError, Mismatch => e
            # Without port and place, which differ each time.
            @wrong["#{self.class.name[/\w+\z/]}: #{e.message.sub(/ (?:- connect\(2\) for|@) .*/, '')}"] += 1
            sleep 0.1
          end
          sleep @pause
        end
      end

      class Mismatch < StandardError; end

      def expect(expected, actual, what)
        raise Mismatch, "#{what} was #{actual.to_s[0, 60].inspect} instead of #{expected.inspect}" unless expected == actual
      end

      def connected
        socket = TCPSocket.new("127.0.0.1", @port)
        socket.setsockopt(Socket::SOL_SOCKET, Socket::SO_RCVTIMEO, [30, 0].pack("l_2"))
        yield socket
      ensure
        socket&.close
      end

      # Reads status and body of a response that ends with its connection.
      def status_and_body(socket) = response(socket).values_at(:status, :body)

      def response(socket)
        head, body = socket.read.to_s.split("\r\n\r\n", 2)
        { status: head.to_s[%r{\AHTTP/1.1 (\d+)}, 1].to_i, body: body.to_s, chunked: head.to_s.match?(/^transfer-encoding: chunked/i) }
      end
    end

    # Uploads in pieces, so that some are in progress at any time.
    class Uploads < Client
      PIECE = ("x" * 20_000).freeze
      PIECES = 10

      private

      def exchange
        connected do |socket|
          size = PIECE.bytesize * PIECES
          socket.write("POST /upload HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: #{size}\r\n\r\n")
          PIECES.times { socket.write(PIECE) and sleep 0.03 }
          expect([200, size.to_s], status_and_body(socket), "the response to an upload")
        end
      end
    end

    # Server-sent events: all of them, and the end, must arrive.
    class Events < Client
      private

      def exchange
        connected do |socket|
          socket.write("GET /events HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
          status, body, chunked = response(socket).values_at(:status, :body, :chunked)
          # Without chunks (Unicorn) the end of the connection is the end.
          complete = !chunked || body.end_with?("0\r\n\r\n")
          expect([200, 10, true], [status, body.scan("data: ").size, complete], "a stream of events")
        end
      end
    end

    # WebSockets: an echo every 50 ms, until the server closes with status 1012 (service restart), or for 20 s.
    class WebSockets < Client
      RESTART = "\x88\x02\x03\xF4".b
      ASK = "GET /echo HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" \
            "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
      FRAME = "\x81\x85\x00\x00\x00\x00hello".b
      ECHO = "\x81\x05hello".b

      private

      def exchange
        connected do |socket|
          socket.write(ASK)
          expect("101", socket.gets("\r\n\r\n").to_s[%r{\AHTTP/1.1 (\d+)}, 1], "the response to Upgrade")
          400.times do
            break if @stopped || closed?(socket)

            sleep 0.05
          end
        end
      end

      def closed?(socket)
        socket.write(FRAME)
        head = socket.read(2)
        frame = "#{head}#{socket.read(head.getbyte(1)) if head && head.bytesize == 2}".b
        return false if frame == ECHO

        expect(RESTART, frame, "what came instead of an echo")
        true
      rescue Errno::EPIPE, Errno::ECONNRESET
        # The server's close may have crossed the frame, so bytes received before count.
        expect(RESTART, socket.read_nonblock(4, exception: false), "what came before the reset")
        true
      end
    end

    # One request after another on a kept connection, which the server may close between two (`Connection: close`).
    class KeepAlive < Client
      private

      def exchange
        connected do |socket|
          20.times do
            socket.write("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            head = socket.gets("\r\n\r\n").to_s
            expect("200", head[%r{\AHTTP/1.1 (\d+)}, 1], "the status of a kept connection")
            expect("Hello", socket.read(head[/^content-length: (\d+)/i, 1].to_i), "the body on a kept connection")
            break if @stopped || head.match?(/^connection: close/i)

            sleep 0.02
          end
        end
      end
    end

    # A new connection for each request.
    class Closing < Client
      private

      def exchange
        connected do |socket|
          socket.write("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
          expect([200, "Hello"], status_and_body(socket), "a response")
        end
      end
    end

    # Clients that disconnect in the middle of a response.
    class Leaving < Client
      private

      def exchange
        connected do |socket|
          socket.write("GET /events HTTP/1.1\r\nHost: x\r\n\r\n")
          sleep Random.rand(0.3)
        end
      end
    end
  end
end
