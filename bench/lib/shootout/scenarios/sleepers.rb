# frozen_string_literal: true

require_relative "../scenario"

module Bench
  module Shootout
    # Very many concurrent waits: in a program, and in a server of waiting requests.
    class Sleepers < Scenario
      called "sleepers", "Sleepers"
      PROGRAMS = File.join(Setup::ROOT, "bench/shootout.d/sleepers")
      LOOK_EVERY = 0.5
      # Threads of each process of a Ruby server: about the most that Firebrick allows.
      THREADS = 500
      # Time that starting them may take in addition to the sleep.
      PATIENCE = 120
      EXPECTED = Stack::Expected.of("slept", "/now")
      ON_MRUBY = "firebrick, mruby"
      # A sleeping request occupies no thread.
      HANDLER = <<~RUBY
        Proc.new do |env|
          sleep ENV["SLEEP"].to_i unless env["PATH_INFO"] == "/now"
          [200, { "content-type" => "text/plain" }, ["slept"]]
        end
      RUBY

      def tables = [programs, servers]

      private

      def count = Figures.number(@size.sleepers)

      def connections = Figures.number(@size.connections)

      def programs
        columns = [Column.new(title: "came about", metric: :had), Column.new(title: "seconds", metric: :seconds, better: "less"), Column.new(title: "CPU s", metric: :cpu_s, better: "less"),
                   Column.new(title: "PSS MiB, most", metric: :pss, better: "less"), Column.new(title: "KiB each", metric: :each, better: "less")]
        trials = [node, go, ruby(@size.threads), ruby(@size.sleepers)]
        Table.new(title: "A program with #{count} sleepers of #{@size.sleep} s", text: program_text, heads: %w[sleepers wanted], columns: columns,
                  trials: trials, plots: [Plot.new(name: "sleepers-memory", title: "Memory of one sleeper", groups: ->(trial) { [trial.cells.join(", "), nil] }, metric: :each, label: "memory for each sleeper", unit: { "named" => "KiB" }, better: "less")])
      end

      def program_text
        "Memory is looked at every #{LOOK_EVERY} s. A program that could not have as many as were wanted failed with as many as came about: Ruby with a ThreadError, because each of its " \
          "threads is one of the system's."
      end

      def node = program("Node timers", @size.sleepers, %w[node]) { ["node", File.join(PROGRAMS, "timers.js")] }

      def go = program("Go goroutines", @size.sleepers, %w[go]) { [built("goroutines")] }

      def ruby(many)
        program("Ruby threads", many, %w[ruby]) { ["ruby", File.join(PROGRAMS, "threads.rb")] }
      end

      def program(name, many, needs, &words)
        Trial.new(name: "#{name}, #{Figures.number(many)}", apart: many < @size.sleepers, cells: [name, Figures.number(many)], needs: needs, seconds: @size.sleep + 3,
                  work: -> { run([*words.call, many.to_s, @size.sleep.to_s], many) })
      end

      # Builds a Go program once; that time is not counted.
      def built(name)
        path = File.join(@setup.dir, name)
        return path if File.exist?(path)

        text, status = Open3.capture2e({ "GO111MODULE" => "off" }, "go", "build", "-o", path, "#{name}.go", chdir: PROGRAMS)
        raise Failure, "go build #{name}.go failed:\n#{text}" unless status.success?

        path
      end

      def run(words, many)
        log = File.join(@setup.dir, "sleepers.log")
        cpu = Setup.children
        begun = now
        most = watch(Process.spawn(*words, pgroup: true, out: log, err: %i[child out]), begun + @size.sleep + PATIENCE)
        seconds = now - begun
        text = File.read(log).strip
        had = text[/after (\d+) threads/, 1]
        return { had: Integer(had) } if had
        raise Failure, text.lines.first.to_s.strip.slice(0, 200) unless text.end_with?("slept")

        { had: many, seconds: seconds, cpu_s: Setup.children - cpu, pss: most, each: most * 1024 / many }
      end

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

      # The peak memory seen until it ended.
      def watch(pid, deadline)
        most = 0.0
        ending = Process.detach(pid)
        until ending.join(LOOK_EVERY)
          raise Failure, "it did not exit within #{PATIENCE} s after the sleep" if now > deadline

          most = [most, ProcessTree.pss_kib(pid) / 1024.0].max
        end
        most
      ensure
        Process.kill(:KILL, pid) && ending.join if ending.alive?
      end

      def servers
        columns = [Column.new(title: "slowest answer s", metric: :seconds, better: "less"), Column.new(title: "CPU ms/request", metric: :cpu_ms, better: "less"),
                   Column.new(title: "PSS MiB, most", metric: :pss, better: "less"), ERRORS]
        Table.new(title: "A server with #{connections} requests that sleep #{@size.sleep} s, all at once", text: server_text, heads: ["server", "processes x threads"], columns: columns,
                  trials: contestants.map { |name, contestant| server(name, contestant) })
      end

      def server_text
        "`#{load}`, a connection for each, all processors for all. In Ruby a request that sleeps holds a thread, in Puma as in Firebrick: #{shape.reduce(:*)} threads are given to both; in a handler on mruby it holds none. " \
          "#{count} such requests at once are more than threads can hold, and over HTTP/1.1 more than one process has descriptors (#{Figures.number(Process.getrlimit(:NOFILE).first)} here); with threads they would go through in " \
          "#{(@size.sleepers / @size.connections.to_f).ceil} waves, a wave of #{@size.sleep} s each."
      end

      def shape = [(@size.connections / THREADS.to_f).ceil, THREADS]

      def load = Generators::Ab.new(requests: @size.connections, concurrency: @size.connections, timeout: @size.sleep + PATIENCE)

      def contestants
        bare = Contestants.bare(@setup)
        { "node" => Contestants.one("node", Peer.new(command: "node #{PROGRAMS}/server.js {port} #{@size.sleep}"), %w[node], "one process, timers"),
          "go" => Contestants.one("go", Peer.new(command: "{go} {port} #{@size.sleep}"), %w[go], "one process, goroutines"),
          "puma" => bare["puma"], "firebrick" => firebrick, ON_MRUBY => on_mruby }
      end

      # Its limits are 10,000 connections and 10,000 queued requests.
      def firebrick
        many = @size.connections * 2
        peer = Contestants.firebrick(@setup, "-b tcp://127.0.0.1:{port}?backlog=4096 --max-connections #{many} --max-queue #{many}")
        Contestants.one("firebrick", peer, [], "limits of connections and of requests in line raised")
      end

      def on_mruby
        command = "{firebrick} serve {home}/handler.rb --mruby -b tcp://127.0.0.1:{port}?backlog=4096 --max-connections #{@size.connections * 2} --control off -q"
        peer = Peer.new(command: Contestants.firebrick_command(@setup, command), config: { "handler.rb" => HANDLER })
        Contestants.one("firebrick", peer, [], "a handler inside the server, with its limit of connections raised")
      end

      def server(name, contestant)
        Trial.new(name: "server: #{name}", cells: [name, %w[puma firebrick].include?(name) ? shape.join("x") : "1 process"], needs: ["ab", *contestant.needs], configuration: Contestants.written_down(contestant),
                  seconds: @size.sleep + 12, work: -> { serve(contestant) })
      end

      def serve(contestant)
        target = @setup.target(@setup.app("sleeper"), shape, EXPECTED, pinned: false, env: { "SLEEP" => @size.sleep.to_s })
        stack = Stack.new(with_go(contestant), target).start
        figures = under_load(stack)
        figures.merge(killed: stack.stop)
      ensure
        stack&.stop
      end

      def with_go(contestant)
        contestant.layers.map do |layer|
          next layer unless layer.peer.command.start_with?("{go}")

          Stack::Layer.new(name: layer.name, peer: Peer.new(command: layer.peer.command.sub("{go}", built("server"))))
        end
      end

      def under_load(stack)
        before = stack.cpu_seconds
        loading = Thread.new { load.run(stack.url.delete_suffix("now"), @setup.generator(@size.sleep, pinned: false)) }
        loading.report_on_exception = false
        most = 0.0
        most = [most, stack.pss_mib].max until loading.join(LOOK_EVERY)
        sample = loading.value
        raise Failure, "no request got a response (#{sample.errors} errors)" if sample.requests.zero?

        # Not ab's total: its first request is sent alone.
        { seconds: sample.longest / 1000, requests: sample.requests, cpu_ms: (stack.cpu_seconds - before) * 1000 / sample.requests, pss: most, errors: sample.errors }
      ensure
        loading&.kill
      end
    end
  end
end
