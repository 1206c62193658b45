# frozen_string_literal: true

require "json"
require_relative "clients"
require_relative "servers"

module Bench
  module Deploys
    # The cost of upgrades for clients: new connections all the time, and every kind of client that keeps one. Before each handover the old
    # program is stopped (SIGSTOP) while the new one boots, so that hundreds of connections wait in the queue of the sockets
    # when they are handed over.
    class Upgrades
      # New connections that are added to the queue before a handover.
      BACKLOG = 512
      # Workers of each program.
      WORKERS = 2
      CLIENTS = { Uploads => 3, Events => 3, WebSockets => 4, KeepAlive => 4 }.freeze

      # Firebrick whose program is replaced. Its app loads when it is allowed to.
      class Upgraded < Firebrick
        NAME = "Firebrick, upgrade"

        def initialize(**)
          super
          write("config.ru", "sleep 0.02 while File.exist?(File.join(__dir__, 'hold'))\n#{APP}")
        end

        # The process that serves, or served before the current upgrade.
        def serving = @serving || @pid

        # Calls the block with the pid of the new program, which does not load the app before `release`.
        def upgrade(&)
          write("version.txt", (@version += 1).to_s)
          write("hold", "")
          out = []
          IO.popen([PROGRAM, "upgrade", dir, { err: %i[child out] }]) do |io|
            io.each_line { |line| out << line and started(line, &) }
          end
          raise Failure, "the upgrade failed:\n#{out.join}" unless $CHILD_STATUS.success?

          wait_for(@version.to_s)
        ensure
          release
        end

        def release = FileUtils.rm_f(File.join(dir, "hold"))

        # The number of connections that wait to be accepted, as the kernel reports for listening sockets.
        def queued
          listening = format(" 0100007F:%04X 00000000:0000 0A ", port)
          File.foreach("/proc/net/tcp").sum { |line| line.include?(listening) ? line.split[4].split(":").last.hex : 0 }
        end

        # The number of processes of the new program: itself, its template, its workers.
        def processes(pid) = ProcessTree.new(pid).living.size

        private

        def main_pid = serving

        def started(line)
          pid = line[/process (\d+) is started/, 1]&.to_i or return
          yield pid
          @serving = pid
        end
      end

      # Connections that are opened together, each with one request, and checked later.
      class Burst
        attr_reader :wrong

        def initialize(port, count)
          @wrong = Hash.new(0)
          address = Socket.sockaddr_in(port, "127.0.0.1")
          @sockets = Array.new(count) do
            Socket.new(:INET, :STREAM).tap { |socket| socket.connect_nonblock(address, exception: false) }
          end
          @asked = @sockets.select { |socket| socket.wait_writable(0) && ask(socket) }
        end

        # Reads all responses.
        def finish
          (@sockets - @asked).each { |socket| note("a connection was not accepted in 30 s") unless socket.wait_writable(30) && ask(socket) }
          @sockets.each { |socket| judge(socket) }
        ensure
          @sockets.each(&:close)
        end

        private

        def ask(socket)
          socket.write("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        rescue SystemCallError => e
          note(e.message)
        end

        def judge(socket)
          return note("no response in 30 s") unless socket.wait_readable(30)

          text = socket.read
          note("the response was #{text[0, 60].inspect}") unless text.start_with?("HTTP/1.1 200 ") && text.end_with?("Hello")
        rescue SystemCallError => e
          note(e.message)
        end

        def note(text)
          @wrong[text] += 1
          nil
        end
      end

      def initialize(rounds:, rate:)
        @rounds = rounds
        @rate = rate
        @wrong = Hash.new(0)
        @queued = []
        @times = []
      end

      # Returns whether no client had a failure.
      def run
        server = Upgraded.new(workers: WORKERS, threads: 5).start
        clients = CLIENTS.flat_map { |kind, count| Array.new(count) { kind.new(server.port).start } }
        load = load(server) { @rounds.times { round(server) } }
        clients.each(&:stop)
        report(clients, load)
      ensure
        server&.stop
      end

      private

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

      # Returns the result of the open load of new connections while the block runs.
      def load(server)
        file = File.join(server.dir, "load.json")
        pid = spawn(Firebrick::PROGRAM, "bench", "http://127.0.0.1:#{server.port}/", "--rate", "#{@rate}/s", "-d", "1h", "--no-keep-alive",
                    "-c", "2000", "--connect-timeout", "30s", "--json", file, %i[out err] => File::NULL)
        yield
        Process.kill("INT", pid)
        Process.wait(pid)
        pid = nil
        JSON.parse(File.read(file))
      ensure
        Process.kill("KILL", pid) && Process.wait(pid) if pid
      end

      def round(server)
        began = now
        old = server.serving
        burst = nil
        server.upgrade do |new|
          # Once it has a template, it has the sockets, and needs nothing more of the old program.
          reach(server, new, 2)
          Process.kill("STOP", old)
          burst = Burst.new(server.port, BACKLOG)
          server.release
          reach(server, new, WORKERS + 2)
          # Waits until the workers are ready, and the new program has told the old one.
          sleep 1
          @queued << server.queued
        ensure
          Process.kill("CONT", old)
        end
        @times << (now - began)
        burst.finish
        burst.wrong.each { |text, count| @wrong["Backlog: #{text}"] += count }
      end

      def reach(server, pid, processes)
        deadline = now + 60
        until server.processes(pid) >= processes
          raise Failure, "the new program has fewer than #{processes} processes after 60 s" if now > deadline

          sleep 0.05
        end
      end

      def report(clients, load)
        clients.each { |one| one.wrong.each { |text, count| @wrong[text] += count } }
        answered = load.dig("outcome", "ok")
        errors = Deploys.errors_in(load)
        errors.each { |kind, count| @wrong["New connections: #{kind}"] += count }
        puts format("%<name>s: %<rounds>d upgrades, %<time>.1f s each; %<requests>d new connections at %<rate>d/s, %<failed>d failed",
                    name: Upgraded::NAME, rounds: @rounds, time: @times.sort[@times.size / 2], requests: answered + errors.values.sum,
                    rate: @rate, failed: errors.values.sum)
        Deploys.say_unsent(load)
        puts format("  waiting in the queue at the handover: %<least>d to %<most>d connections; %<sum>d of the benchmark's own, %<failed>d failed",
                    least: @queued.min, most: @queued.max, sum: BACKLOG * @rounds,
                    failed: @wrong.sum { |text, count| text.start_with?("Backlog") ? count : 0 })
        clients.group_by(&:class).each do |kind, ones|
          puts "  #{kind.name[/\w+\z/]}: #{ones.sum(&:completed)} completed, #{ones.sum { |one| one.wrong.values.sum }} failed"
        end
        @wrong.each { |text, count| puts "  #{count} x #{text}" }
        @wrong.empty?
      end
    end
  end
end
