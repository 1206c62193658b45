# frozen_string_literal: true

require "openssl"
require_relative "../../../worker/lib/firebrick/hub/publisher"
require_relative "event_clients"
require_relative "hello"
require_relative "servers"

module Bench
  module Hub
    # The hub alone: listeners need no app, only a signed name.
    class EventServer < Firebrick
      SECRET = "0123456789abcdef" * 4
      STREAM = "room"

      # As processes of the app do.
      def publish(payload)
        @publisher ||= ::Firebrick::Hub::Publisher.new(File.join(dir, "tmp/firebrick-hub.sock"))
        @publisher.publish(STREAM, payload)
      end

      # Signed as ActiveSupport::MessageVerifier does.
      def path
        data = [JSON.generate(STREAM)].pack("m0")
        "/cable/events?stream=#{data}--#{OpenSSL::HMAC.hexdigest('SHA256', SECRET, data)}"
      end

      private

      def command = super.map { |word| word.start_with?("tcp:") ? "#{word}?h2c=true" : word }
      def settings = "[hub]\npath = \"/cable\"\nsecret = \"#{SECRET}\"\n[limits]\nhttp2_streams = 1000\n"
    end

    # One server with its listeners.
    class EventTrial
      # Seconds until buffers of the handshakes are given back; listeners that come first, so that memory that a server takes once does not count.
      SETTLE = 3
      FIRST = 200

      def initialize(count:, connections:, idle:, messages:)
        @count = count
        @connections = connections
        @idle = idle
        @messages = messages
        @server = EventServer.new
      end

      # Returns whether every message has reached every listener.
      def run
        @server.start
        EventClients.new(@server, FIRST, 2).close
        sleep SETTLE
        before = @server.tree.pss_mib
        clients = EventClients.new(@server, @count, @connections)
        sleep SETTLE
        memory = (@server.tree.pss_mib - before) * 1024 / @count
        idle = busy { sleep @idle } / @idle
        took = nil
        hello = Hello.new(@server.port)
        used = busy { took = messages(clients) }
        report(clients, memory, idle, used, took, hello.stop)
        clients.received == @messages * @count
      ensure
        clients&.close
        @server.stop
      end

      private

      def busy
        before = @server.tree.cpu_seconds
        yield
        @server.tree.cpu_seconds - before
      end

      # Returns the milliseconds until all listeners had the last message.
      def messages(clients)
        (1..@messages).map do |number|
          began = Process.clock_gettime(Process::CLOCK_MONOTONIC, :float_millisecond)
          @server.publish(JSON.generate("m" * 200))
          clients.wait(number * @count)
          Process.clock_gettime(Process::CLOCK_MONOTONIC, :float_millisecond) - began
        end.last
      end

      def report(clients, memory, idle, used, took, hello)
        puts "#{@count} listeners on #{@connections} connections of HTTP/2, #{@messages} messages of 200 bytes", ""
        puts "| memory each | idle CPU | CPU per recipient | last listener after | hello beside: p50, p99 | delivered |", "|---|---|---|---|---|---|"
        puts format("| %.2f KiB | %.3f cores | %.2f µs | %.0f ms | %.1f, %.1f ms | %d of %d |", memory, idle, used * 1e6 / (@messages * @count), took,
                    *hello, clients.received, @messages * @count)
      end
    end
  end
end
