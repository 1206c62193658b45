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
    # 3. A reload first loads the code, then repeats requests, then tries and rolls out a worker: each stage has a p95 of its own, with the requests that were
    #    begun in it.
    # 4. A page's first request after a reload is compared with the median of the page before it; beside it the same of the time without a reload,
    #    because a single request may wait for others.
    class AfterReload < Comparison
      SECONDS = 30
      CAPACITY_SECONDS = 15
      LOAD = 0.5
      # Pages that are named.
      SHOWN = 6
      # Downloads and pictures that programs draw depend on the disk.
      SKIPPED = /\.(png|pdf)/
      # The lines of `firebrick reload` with which a stage ends.
      STAGES = { "loading" => /: the app is loaded /, "repeating" => /: warmed by /, "trial" => /\Adone: / }.freeze
      # The figures by their units.
      FORMATS = { "s" => "%.1f", "ms" => "%.0f", "x" => "%.2f" }.freeze

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
        rows = Array.new(@reloads) { |number| row(peer, rate).tap { |row| number.zero? ? head(row) : line(row) } }
        puts "", "Medians:"
        head(rows.first.to_h { |name, _| [name, median(rows.map { |row| row[name] })] })
        puts "", "The slowest first requests: #{@slow.max_by(SHOWN, &:last).map { |page, times| format('%s %.1f x', page, times) }.join(', ')}"
      end

      def head(row)
        puts "| #{row.keys.join(' | ')} |", "|#{'---:|' * row.size}"
        line(row)
      end

      def line(row)
        puts "| #{row.map { |name, value| format(FORMATS.fetch(name[/\w+\z/]), value) }.join(' | ')} |"
      end

      # The figures of a reload, each with its unit: a time, or a multiple of the time without a reload.
      def row(peer, rate)
        before = peer.visitors.during(rate) { sleep SECONDS }
        ends = nil
        during = peer.visitors.during(rate) { ends = reload(peer) }
        after = peer.visitors.during(rate) { sleep SECONDS }
        usual = before.group_by(&:page).transform_values { |all| median(all.map(&:seconds)) }
        firsts, others = [after, before].map { |all| first_requests(all, usual) }
        @slow = (@slow || {}).merge(firsts) { |_, one, other| [one, other].max }
        p95, p99 = [0.95, 0.99].map { |part| part(before, part) }
        {
          "the reload, s" => ends["trial"] - ends["begin"], "p95 without, ms" => p95 * 1000, "p95 during, x" => part(during, 0.95) / p95, **stages(during, ends, p95),
          "p99 without, ms" => p99 * 1000, "p99 in #{SECONDS} s after, x" => part(after, 0.99) / p99,
          "first requests, x" => median(firsts.values), "worst, x" => firsts.values.max, "worst without a reload, x" => others.values.max
        }
      end

      # The time of each stage, and the p95 of the requests that were begun in it.
      def stages(during, ends, usual)
        ends.each_cons(2).reduce({}) do |all, ((_, from), (stage, to))|
          begun = during.select { |fetched| fetched.began.between?(from, to) }
          all.merge("#{stage}, s" => to - from, "p95 #{stage}, x" => begun.empty? ? Float::NAN : part(begun, 0.95) / usual)
        end
      end

      # The first request of each page, as a multiple of the page's usual time.
      def first_requests(all, usual)
        firsts = all.sort_by(&:began).uniq(&:page).select { |fetched| usual.key?(fetched.page) }
        firsts.to_h { |fetched| [fetched.page, fetched.seconds / usual[fetched.page]] }
      end

      def part(all, part) = quantile(all.map(&:seconds).sort, part)

      # Returns when the reload began, and when each of its stages ended.
      def reload(peer)
        ends = { "begin" => now }
        text = +""
        Open3.popen2e({ "XDG_RUNTIME_DIR" => @dir }, Program.built("dist", "release"), "reload", peer.instance.dir) do |input, output, process|
          input.close
          output.each_line do |line|
            text << line
            stage, = STAGES.find { |_, pattern| pattern.match?(line) }
            ends[stage] = now if stage
          end
          raise Failure, "the reload failed:\n#{text}" unless process.value.success?
        end
        missing = STAGES.keys - ends.keys
        raise Failure, "no end of #{missing.join(', ')} in the reload's lines:\n#{text}" if missing.any?

        ends
      end

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end
