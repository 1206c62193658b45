# frozen_string_literal: true

require "English"
require "json"
require_relative "../failure"
require_relative "../program"

module Bench
  module Hub
    # The clients: `measure/load/examples/cable_clients.rs` in a process of its own.
    class Clients
      PROGRAM = ENV["CABLE_CLIENTS"] || File.join(Program::ROOT, "target/release/examples/cable_clients")

      # Seconds until all were subscribed.
      attr_reader :opened

      def initialize(server, count)
        raise Failure, "#{PROGRAM} is not there: cargo build --release -p load --example cable_clients" unless File.executable?(PROGRAM)

        words = [PROGRAM, "127.0.0.1:#{server.port}", server.path, count.to_s, server.identifier]
        @io = IO.popen(words, "r+", err: @log = File.join(server.dir, "clients.log"))
        @opened = Float(line[/\Aopen (.+)/, 1])
      end

      # Forgets what has come so far. Returns the number of open WebSockets.
      def begin = ask("begin")["open"]

      # Waits until each client has got so many messages. Returns the figures.
      def end(messages) = ask("end #{messages}")

      def stop
        Process.kill("TERM", @io.pid)
        @io.close
      rescue Errno::ESRCH
        nil
      end

      private

      def ask(text)
        @io.puts(text)
        JSON.parse(line)
      end

      def line
        @io.gets or raise Failure, "the clients have ended:\n#{File.read(@log)[-2000..] || File.read(@log)}"
      end
    end
  end
end
