# frozen_string_literal: true

require "English"
require "fileutils"
require "json"
require "net/http"
require "securerandom"
require "shellwords"
require "socket"
require "tmpdir"
require_relative "../failure"
require_relative "../machine"
require_relative "../process_tree"
require_relative "../program"
require_relative "app"

module Bench
  module Hub
    # A server of Action Cable in a folder of its own. Subclasses define the command, and where messages are published.
    class Server
      BOOT = 30
      CHANNEL = JSON.generate(channel: "RoomChannel")

      attr_reader :port, :dir

      def initialize
        @dir = Dir.mktmpdir("bench-hub")
        @port = Machine.free_port
        File.write(File.join(dir, "config.ru"), APP)
      end

      def start
        variables = { "ADAPTER" => adapter, "RACK_ENV" => "production", **environment }
        descriptors = Process.getrlimit(:NOFILE)[1]
        @pid = spawn(variables, *command, chdir: dir, pgroup: true, rlimit_nofile: descriptors, %i[out err] => log)
        wait
        self
      rescue Errno::ENOENT => e
        raise Failure, "#{self.class::NAME} is not installed (#{e.message})"
      end

      def stop
        Process.kill("TERM", @pid)
        50.times { Process.wait(@pid, Process::WNOHANG) ? return : sleep(0.1) }
        Process.kill("KILL", -@pid)
        Process.wait(@pid)
      rescue Errno::ESRCH, Errno::ECHILD, TypeError
        nil
      ensure
        FileUtils.rm_rf(dir)
      end

      def tree = ProcessTree.new(@pid)

      def publish
        response = Net::HTTP.post(URI("http://127.0.0.1:#{port}/publish"), "")
        raise Failure, "#{self.class::NAME}: the message was refused with #{response.code}" unless response.code.start_with?("2")
      end

      # The path of WebSockets, and the identifier to subscribe to.
      def path = "/cable?user=ann"
      def identifier = CHANNEL

      private

      def environment = {}
      def log = File.join(dir, "log")

      def wait
        (BOOT * 10).times do
          return Socket.tcp("127.0.0.1", port).close
        rescue SystemCallError
          raise Failure, "#{self.class::NAME} has ended:\n#{File.read(log)}" if Process.wait(@pid, Process::WNOHANG)

          sleep 0.1
        end
        raise Failure, "#{self.class::NAME} does not listen after #{BOOT} s:\n#{File.read(log)}"
      end
    end

    # The hub, with the app in two workers.
    class Firebrick < Server
      NAME = "Firebrick"
      PROGRAM = Program.path("release")

      def start
        File.write(File.join(dir, "firebrick.toml"), settings)
        super
      end

      def reload
        out = IO.popen([PROGRAM, "reload", dir, { err: %i[child out] }], &:read)
        raise Failure, "the reload failed:\n#{out}" unless $CHILD_STATUS.success?
      end

      # Kills a worker, and waits for the next one.
      def kill_worker
        pid = ready.first
        Process.kill("KILL", pid)
        300.times { ready.include?(pid) || ready.size < 2 ? sleep(0.1) : return }
        raise Failure, "no worker has taken the place of the killed one within 30 s"
      end

      private

      # A connection beyond `max_connections` would take the place of a client.
      def settings = "[hub]\npath = \"/cable\"\n[limits]\nmax_connections = 20000\n[reload]\nwatch = \"0s\"\nkeep = \"0s\"\n"
      def adapter = "firebrick"
      def environment = { "FIREBRICK_LIB" => ENV["FIREBRICK_LIB"] || File.join(Program::ROOT, "worker/lib") }
      def command = [PROGRAM, "serve", dir, "-b", "tcp://127.0.0.1:#{port}", "-e", "production", "-w", "2", "-t", "5:5"]

      # Process ids of workers that serve.
      def ready
        stats = JSON.parse(IO.popen([PROGRAM, "stats", dir, "--json", { err: File::NULL }], &:read))
        stats["workers"].select { |worker| worker["state"] == "ready" }.map { |worker| worker["pid"] }
      end
    end

    # Action Cable in one process of Puma, whose adapter needs no other program.
    class Puma < Server
      NAME = "Puma and Action Cable"

      private

      def adapter = "async"
      def command = [*(ENV["PUMA"] || "puma").shellsplit, "-e", "production", "-b", "tcp://127.0.0.1:#{port}", "-w", "0", "-t", "5:5", "config.ru"]
    end

    # AnyCable's server without an app: public streams, and messages over HTTP. ANYCABLE names its program.
    class AnyCable < Server
      NAME = "AnyCable"

      def publish
        message = JSON.generate(sent: Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond), text: "x" * 200)
        Net::HTTP.post(URI("http://127.0.0.1:#{port}/_broadcast"), JSON.generate(stream: "room", data: message))
      end

      def path = "/cable"
      def identifier = JSON.generate(channel: "$pubsub", stream_name: "room")

      private

      def adapter = ""

      def command
        program = ENV.fetch("ANYCABLE") { raise Failure, "AnyCable: build it from its source, and name the program by ANYCABLE" }
        [program, "--host=127.0.0.1", "--port=#{port}", "--public", "--broadcast_adapter=http", "--http_broadcast_port=#{port}", "--log_level=error"]
      end
    end

    SERVERS = { "firebrick" => Firebrick, "puma" => Puma, "anycable" => AnyCable }.freeze
  end
end
