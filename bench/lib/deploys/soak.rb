# frozen_string_literal: true

require_relative "clients"
require_relative "servers"

module Bench
  module Deploys
    # Simulates years in an hour: a reload every minute, workers replaced by age and by number of requests, changing clients.
    # Memory, descriptors and processes must stay constant, and no client may see a failure.
    class Soak
      # The largest ratio of the front's memory in the last third to the second; the first third is the warm-up.
      GROWTH = 1.1
      LIMITS = "[limits]\nmax_age = \"100s\"\nmax_requests = 3000\n"
      WORKERS = 2
      Sample = Struct.new(:front_mib, :tree_mib, :shared_mib, :descriptors, :processes)

      def initialize(minutes:, every:)
        @rounds = (minutes * 60 / every).ceil
        @every = every
      end

      # Returns whether there was no failure.
      def run
        server = Firebrick.new(workers: WORKERS, settings: LIMITS).start
        clients = start_clients(server.port)
        samples = Array.new(@rounds) { |round| round(server, round) }
        clients.each(&:stop)
        judge(clients, samples)
      ensure
        server&.stop
      end

      private

      def start_clients(port)
        [[KeepAlive, 6], [Closing, 4], [Uploads, 3], [Events, 3], [WebSockets, 4], [Leaving, 3]].flat_map do |kind, count|
          Array.new(count) { kind.new(port).start }
        end
      end

      def round(server, number)
        began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
        server.deploy
        sleep [@every - (Process.clock_gettime(Process::CLOCK_MONOTONIC) - began), 1].max
        one = settled(server)
        puts format("%<n>3d  front %<front>.1f MiB, all %<tree>.0f MiB, shared memory %<shared>.1f MiB, %<fds>d descriptors, %<processes>d processes",
                    n: number + 1, front: one.front_mib, tree: one.tree_mib, shared: one.shared_mib, fds: one.descriptors, processes: one.processes)
        $stdout.flush
        one
      end

      # Workers being replaced briefly add processes, so the smallest of some samples counts.
      def settled(server)
        Array.new(10) { sleep(0.3) && sample(server) }.min_by(&:processes)
      end

      def sample(server)
        tree = ProcessTree.new(server.pid)
        status = File.read("/proc/#{server.pid}/status")
        shared = File.read("/proc/meminfo")[/^Shmem:\s+(\d+)/, 1].to_i
        Sample.new(status[/VmRSS:\s+(\d+)/, 1].to_i / 1024.0, tree.pss_mib, shared / 1024.0,
                   Dir.children("/proc/#{server.pid}/fd").size, tree.living.size)
      end

      def judge(clients, samples)
        report_clients(clients)
        faults = clients.flat_map { |one| one.wrong.to_a }.map { |what, n| "#{n} x #{what}" }
        faults.concat(growth(samples))
        # The front, a template, the workers; descriptors vary with the clients.
        extra = samples.map(&:processes).max - (WORKERS + 2)
        faults << "#{extra} processes too many" if extra.positive?
        faults.each { |fault| puts "fault: #{fault}" }
        puts "no fault in #{samples.size} reloads" if faults.empty?
        faults.empty?
      end

      def report_clients(clients)
        clients.group_by(&:class).each do |kind, ones|
          puts "#{kind.name[/\w+\z/]}: #{ones.sum(&:completed)} completed, #{ones.sum { |one| one.wrong.values.sum }} failed"
        end
      end

      def growth(samples)
        return ["fewer than 6 reloads: growth cannot be judged"] if samples.size < 6

        _, second, last = samples.each_slice((samples.size / 3.0).ceil).to_a
        %i[front_mib tree_mib descriptors].filter_map do |figure|
          from, to = [second, last].map { |some| some.map(&figure).sort[some.size / 2].to_f }
          # Changing clients may add or remove up to 8 descriptors.
          slack = figure == :descriptors ? 8 : 0
          format("%<figure>s grew from %<from>.1f to %<to>.1f", figure:, from:, to:) if to > (from * GROWTH) + slack
        end
      end
    end
  end
end
