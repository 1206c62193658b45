# frozen_string_literal: true

require "shellwords"
require "socket"
require_relative "../program"

class Sleepers
  # The servers, each with the same four paths (examples/sleepers).
  class Servers
    ROOT = File.expand_path("../../..", __dir__)
    FOLDER = File.join(ROOT, "bench/sleepers.d")
    FIREBRICK = Bench::Program.path
    # Descriptors of a worker, including its own.
    DESCRIPTORS = 19_000

    ALL = {
      "firebrick" => :firebrick,
      "go" => :go,
      "node" => :node
    }.freeze

    # Command lines of other servers, by name.
    OTHERS = {} # rubocop:disable Style/MutableConstant

    class << self
      # Returns a server that listens; nil, with a note, when it is not available.
      def start(name, dir, count, late)
        command = OTHERS.key?(name) ? other(name, dir) : send(ALL.fetch(name), dir, count, late)
        return puts("#{name} is not installed: left out") unless command

        port = TCPServer.open("127.0.0.1", 0) { |free| free.local_address.ip_port }
        new(command.map { |word| word.gsub("{port}", port.to_s) }, dir, port, late, File.join(dir, "log"))
      end

      private

      def firebrick(dir, count, late)
        # Each blocked read takes a descriptor of its worker.
        workers = [4, late ? (count.to_f / DESCRIPTORS).ceil : 0].max
        FileUtils.cp(File.join(ROOT, "examples/sleepers/config.ru"), dir)
        File.write(File.join(dir, "firebrick.toml"), "[limits]\nmax_queue = #{count}\n")
        [FIREBRICK, "serve", dir, "-b", "tcp://127.0.0.1:{port}?h2c=true", "-w", workers.to_s, "-t", "1", "-e", "production",
         "--fibers", (count.to_f / workers).ceil.+(100).to_s]
      end

      def go(dir, *)
        program = File.join(dir, "sleepers-go")
        return unless system("go", "build", "-o", program, "server.go", chdir: FOLDER)

        [program, "{port}"]
      end

      def other(name, dir)
        FileUtils.cp(File.join(ROOT, "examples/sleepers/config.ru"), dir)
        OTHERS.fetch(name).shellsplit
      end

      def node(*)
        return unless system("which node > /dev/null")

        ["node", File.join(FOLDER, "server.js"), "{port}"]
      end
    end

    attr_reader :pid, :port

    def initialize(command, folder, port, late, log)
      @port = port
      @pid = spawn({ "LATE" => late, "MALLOC_ARENA_MAX" => "2" }, *command, chdir: folder, %i[out err] => log, pgroup: true, rlimit_nofile: 20_000)
      wait(log)
    end

    def stop
      Process.kill("TERM", @pid)
      Process.wait(@pid)
    end

    private

    def wait(log)
      200.times do
        return Socket.tcp("127.0.0.1", @port).close
      rescue SystemCallError
        sleep 0.1
      end
      abort "the server did not start:\n#{File.read(log)}"
    end
  end
end
