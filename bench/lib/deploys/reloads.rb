# frozen_string_literal: true

require "json"
require_relative "clients"
require_relative "servers"

module Bench
  module Deploys
    # The cost of reloads for clients: an open load with and without keep-alive, including uploads and streams, first undisturbed, then
    # during reloads. Reports failures of any client, and latency compared with the undisturbed part.
    class Reloads
      # The limit for Firebrick: the ratio of the 99th percentile during reloads to the one before.
      SLOWER = 2.0
      PEERS = [PumaPhased, PumaRestart, UnicornUpgrade, PassengerRestart].freeze

      # everything: Firebrick's reloads warm up, are shadowed and are tried for longer.
      def initialize(rounds:, rate:, calm:, peers:, everything: false)
        @rounds = rounds
        @calm = calm
        @rate = rate
        @options = everything ? { Firebrick => { everything: true } } : {}
        @servers = [Firebrick, *(PEERS if peers)]
      end

      # Returns whether Firebrick has no failure and is not slowed too much.
      def run
        puts "| server | requests | failed | p99 before | p99 during | uploads failed | streams failed | WebSockets not told | a deploy takes |"
        puts "|---|---|---|---|---|---|---|---|---|"
        @servers.map { |kind| measure(kind) }.first
      end

      private

      def measure(kind)
        server = kind.new(workers: 2, threads: 5, **@options.fetch(kind, {}))
        server.start
        calm = load(server) { sleep @calm }
        others = others_of(kind, server)
        times = []
        busy = load(server) { @rounds.times { times << timed { server.deploy } } }
        others.each(&:stop)
        report(kind, calm, busy, others, times)
      rescue Failure => e
        puts "| #{kind::NAME} | #{e.message.lines.first.chomp} |"
        others&.each(&:stop)
        false
      ensure
        server&.stop
      end

      def timed
        began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
        yield
        Process.clock_gettime(Process::CLOCK_MONOTONIC) - began
      end

      # Unicorn cannot hand connections over.
      def others_of(kind, server)
        kinds = kind == UnicornUpgrade ? [Uploads, Events] : [Uploads, Events, WebSockets]
        kinds.flat_map { |one| Array.new(2) { one.new(server.port).start } }
      end

      # Returns the results of both loads while the block runs.
      def load(server)
        files = %w[kept closed].map { |name| File.join(server.dir, "#{name}.json") }
        pids = files.zip([[], ["--no-keep-alive"]]).map do |file, flags|
          spawn(Firebrick::PROGRAM, "bench", "http://127.0.0.1:#{server.port}/", "--rate", "#{@rate / 2}/s", "-d", "1h", *flags,
                "--json", file, %i[out err] => File::NULL)
        end
        yield
        pids.each { |pid| Process.kill("INT", pid) and Process.wait(pid) }
        pids = []
        files.map { |file| JSON.parse(File.read(file)) }
      ensure
        pids&.each { |pid| Process.kill("KILL", pid) and Process.wait(pid) }
      end

      def report(kind, calm, busy, others, times)
        errors = busy.map { |one| Deploys.errors_in(one) }.reduce { |one, other| one.merge(other) { |_, a, b| a + b } }
        failed = errors.values.sum
        before, during = [calm, busy].map { |results| results.map { |one| one.dig("summary", "latency_ms", "p99") } }
        wrong = [Uploads, Events, WebSockets].map { |one| others.grep(one).sum { |client| client.wrong.values.sum } }
        puts format("| %<name>s | %<requests>d | %<failed>d | %<before>s ms | %<during>s ms | %<wrong>s | %<time>.1f s |",
                    name: kind::NAME, requests: busy.sum { |one| one.dig("summary", "requests") }, failed:, before: figures(before),
                    during: figures(during), wrong: wrong.join(" | "), time: times.sort[times.size / 2])
        errors.each { |error, count| puts "  #{count} x #{error}" }
        busy.zip(["with keep-alive", "without"]) { |result, name| say_failures(result, name) }
        Deploys.say_unsent(*busy)
        others.flat_map { |one| one.wrong.to_a }.uniq(&:first).each { |what, _| puts "  #{what}" }
        slower = before.zip(during).map { |was, is| is / was }.max
        puts format("  slowed %<slower>.1f times, %<allowed>.1f allowed", slower:, allowed: SLOWER) if slower > SLOWER
        failed.zero? && wrong.sum.zero? && slower <= SLOWER
      end

      # When requests failed, in seconds since the first reload, and why.
      def say_failures(result, name)
        seconds = result.dig("outcome", "course").each_index.select { |at| result.dig("outcome", "course", at, "errors").positive? }
        puts "  #{name}, in seconds #{seconds.join(', ')}: #{result.dig('outcome', 'errors', 'texts').to_json}" if seconds.any?
      end

      # With keep-alive, and without.
      def figures(pair) = pair.map { |ms| format("%.1f", ms) }.join(" / ")
    end
  end
end
