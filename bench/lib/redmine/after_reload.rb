# frozen_string_literal: true

require "open3"
require_relative "comparison"
require_relative "paced"

module Bench
  module Redmine
    # Redmine at half of the load that the server can take, before, during and after reloads of the same code: are the new workers warm?
    #
    # 1. The load is half of the rate of visitors who do not pause.
    # 2. Before each reload the same seconds are measured without one, so that what changes in the machine changes both.
    # 3. A page's first request after a reload is compared with the median of the page before it; beside it the same of the time without a reload,
    #    because a single request may wait for others.
    class AfterReload < Comparison
      SECONDS = 30
      CAPACITY_SECONDS = 15
      LOAD = 0.5
      # Pages that are named.
      SHOWN = 6
      # Downloads and pictures that programs draw depend on the disk.
      SKIPPED = /\.(png|pdf)/

      def initialize(reloads:, **options)
        super(**options, without: ["puma", *options[:without]])
        @reloads = reloads
        @pages = @pages.grep_v(SKIPPED)
      end

      private

      # With the initializer of examples/redmine, which serves repeated requests as those of a user who has logged in.
      def start(peer)
        peer.instance.add_examples("warm_up.rb")
        serve(peer)
        peer.visitors = Paced.new(peer.server.port, @clients, @pages, 1)
      end

      def warm_up(peer, _number) = peer.visitors.capacity(CAPACITY_SECONDS)

      # Nothing is measured in rounds.
      def measure(*) = nil

      def memory(*) = nil

      def report
        @peers.each { |peer| follow(peer) }
      end

      def follow(peer)
        rate = peer.visitors.capacity(CAPACITY_SECONDS) * LOAD
        puts format("%s, %dx%d workers x threads, %.1f requests/s, half of what it can take, %d pages", peer.name, *@shape, rate, @pages.size), ""
        puts "| reload | took | p95 without | p95 during | x | p99 without | p99 in #{SECONDS} s after | x | first requests: median x | worst x | without a reload: worst x |", "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
        rows = Array.new(@reloads) { |number| row(peer, rate, number + 1) }
        puts format("| median | | | | %.2f | | | %.2f | %.2f | %.2f | %.2f |", *[2, 5, 6, 7, 8].map { |at| median(rows.map { |row| row[at] }) })
        puts "", "The slowest first requests: #{@slow.max_by(SHOWN, &:last).map { |page, times| format('%s %.1f x', page, times) }.join(', ')}"
      end

      def row(peer, rate, number)
        before = peer.visitors.during(rate) { sleep SECONDS }
        usual = before.group_by(&:page).transform_values { |all| median(all.map(&:seconds)) }
        took = nil
        during = peer.visitors.during(rate) { took = reload(peer) }
        after = peer.visitors.during(rate) { sleep SECONDS }
        firsts, others = [after, before].map { |all| first_requests(all, usual) }
        @slow = (@slow || {}).merge(firsts) { |_, one, other| [one, other].max }
        p95, p95_during = [before, during].map { |all| part(all, 0.95) }
        p99, p99_after = [before, after].map { |all| part(all, 0.99) }
        row = [p95, p95_during, p95_during / p95, p99, p99_after, p99_after / p99, median(firsts.values), firsts.values.max, others.values.max]
        puts format("| %d | %.1f s | %.0f ms | %.0f ms | %.2f | %.0f ms | %.0f ms | %.2f | %.2f | %.2f | %.2f |", number, took, *row.each_with_index.map { |value, at| [0, 1, 3, 4].include?(at) ? value * 1000 : value })
        row
      end

      # The first request of each page, as a multiple of the page's usual time.
      def first_requests(all, usual)
        firsts = all.sort_by(&:began).uniq(&:page).select { |fetched| usual.key?(fetched.page) }
        firsts.to_h { |fetched| [fetched.page, fetched.seconds / usual[fetched.page]] }
      end

      def part(all, part) = quantile(all.map(&:seconds).sort, part)

      def reload(peer)
        began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
        text, status = Open3.capture2e({ "XDG_RUNTIME_DIR" => @dir }, Program.built("dist", "release"), "reload", peer.instance.dir)
        raise Failure, "the reload failed:\n#{text}" unless status.success?

        Process.clock_gettime(Process::CLOCK_MONOTONIC) - began
      end
    end
  end
end
