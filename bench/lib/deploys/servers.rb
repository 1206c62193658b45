# frozen_string_literal: true

require "English"
require "fileutils"
require "socket"
require "tmpdir"
require_relative "../failure"
require_relative "../process_tree"
require_relative "../program"
require_relative "app"

module Bench
  module Deploys
    # A server whose app is replaced while it runs. Subclasses define how it is started and told to do so.
    class Server
      attr_reader :port, :pid, :dir

      def initialize(workers: 2, threads: 5)
        @workers = workers
        @threads = threads
        @dir = Dir.mktmpdir("deploys")
        @port = TCPServer.open("127.0.0.1", 0) { |one| one.addr[1] }
        @version = 0
        write("config.ru", APP)
        write("version.txt", "0")
      end

      def start
        @pid = spawn(*command, chdir: dir, pgroup: true, %i[out err] => log)
        wait_for("0")
        self
      rescue Errno::ENOENT => e
        FileUtils.rm_rf(dir)
        raise Failure, "#{self.class::NAME}: it is not installed (#{e.message})"
      end

      # Deploys another version and waits until all responses come from it.
      def deploy
        write("version.txt", (@version += 1).to_s)
        tell
        wait_for(@version.to_s)
      end

      def stop
        return unless @pid

        Process.kill("TERM", main_pid)
        deadline = now + 15
        sleep 0.05 while alive? && now < deadline
      ensure
        Process.kill("KILL", -@pid) if alive?
        reap
        FileUtils.rm_rf(dir)
      end

      def log = File.join(dir, "log")

      private

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

      def main_pid = @pid

      def alive?
        Process.kill(0, -@pid)
        reap
        true
      rescue Errno::ESRCH
        false
      end

      def reap
        Process.wait(@pid, Process::WNOHANG)
      rescue Errno::ECHILD
        nil
      end

      def write(name, text) = File.write(File.join(dir, name), text)

      # Waits until 30 connections in a row get this version.
      def wait_for(version)
        deadline = now + 60
        in_a_row = 0
        while in_a_row < 30
          raise Failure, "#{self.class::NAME} did not come to version #{version} in 60 s:\n#{File.read(log)[-2000..]}" if now > deadline

          in_a_row = seen == version ? in_a_row + 1 : 0
          sleep 0.05 if in_a_row.zero?
        end
      end

      def seen
        TCPSocket.open("127.0.0.1", port) do |socket|
          socket.write("GET /version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
          socket.read.split("\r\n\r\n", 2)[1]
        end
      rescue SystemCallError
        nil
      end
    end

    class Firebrick < Server
      NAME = "Firebrick, reload"
      PROGRAM = Program.path("release")

      # The settings of a reload that does more than replace workers.
      EVERYTHING = "watch = \"5s\"\nshadow = \"3s\"\nwarm_paths = [\"/\"]\n"

      # settings: more lines of firebrick.toml; everything: with a shadow and a warm-up, and a longer trial.
      def initialize(settings: "", everything: false, **rest)
        super(**rest)
        write("firebrick.toml", "[reload]\nkeep = \"0s\"\n#{everything ? EVERYTHING : "watch = \"1s\"\n"}#{settings}")
      end

      private

      def command = [PROGRAM, "serve", "-e", "production", "-b", "tcp://127.0.0.1:#{port}", "-w", @workers.to_s, "-t", "#{@threads}:#{@threads}"]

      def tell
        out = IO.popen([PROGRAM, "reload", dir, { err: %i[child out] }], &:read)
        raise Failure, "the reload failed:\n#{out}" unless $CHILD_STATUS.success?
      end
    end

    # Workers one at a time, without preloading: the only rolling restart that Puma has.
    class PumaPhased < Server
      NAME = "Puma, phased restart (USR1)"
      PROGRAM = ENV["PUMA"] || "puma"

      private

      def command = [*PROGRAM.split, "-e", "production", "-b", "tcp://127.0.0.1:#{port}", "-w", @workers.to_s, "-t", "#{@threads}:#{@threads}"]

      def tell = Process.kill("USR1", @pid)
    end

    # A restart of everything; the listening socket stays.
    class PumaRestart < PumaPhased
      NAME = "Puma, restart (USR2)"

      private

      def tell = Process.kill("USR2", @pid)
    end

    # A second master with its own workers, which ends the first when its last worker is ready: the configuration that
    # Unicorn's examples recommend.
    class UnicornUpgrade < Server
      NAME = "Unicorn, USR2 and QUIT"
      SETTINGS = <<~'RUBY'
        preload_app true
        timeout 60
        before_fork do |server, worker|
          old = "#{server.config[:pid]}.oldbin"
          if File.exist?(old) && server.pid != old
            begin
              Process.kill(worker.nr + 1 >= server.worker_processes ? :QUIT : :TTOU, File.read(old).to_i)
            rescue Errno::ENOENT, Errno::ESRCH
            end
          end
        end
      RUBY

      private

      # Unicorn's workers have no threads: as many processes as the others have threads.
      def command
        write("unicorn.rb", "listen \"127.0.0.1:#{port}\"\nworker_processes #{@workers * @threads}\npid #{File.join(dir, 'pid').inspect}\n#{SETTINGS}")
        %w[unicorn -E production -c unicorn.rb]
      end

      def main_pid = File.read(File.join(dir, "pid")).to_i

      # Unicorn refuses while an older master exists.
      def tell
        deadline = now + 30
        sleep 0.05 while File.exist?(File.join(dir, "pid.oldbin")) && now < deadline
        Process.kill("USR2", main_pid)
      end
    end

    # Passenger's open-source edition has neither threads nor a rolling restart: new processes are started while requests wait.
    class PassengerRestart < Server
      NAME = "Passenger, restart-app"

      private

      # As many processes as the others have threads.
      def command
        processes = (@workers * @threads).to_s
        ["passenger", "start", "-e", "production", "-a", "127.0.0.1", "-p", port.to_s, "--engine", "builtin", "--max-pool-size", processes,
         "--min-instances", processes, "--disable-security-update-check", "--no-install-runtime"]
      end

      def tell
        out = IO.popen(["passenger-config", "restart-app", dir, { err: %i[child out] }], &:read)
        raise Failure, "restart-app failed:\n#{out}" unless $CHILD_STATUS.success?
      end
    end
  end
end
