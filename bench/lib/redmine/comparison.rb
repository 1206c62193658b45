# frozen_string_literal: true

$LOAD_PATH.unshift(File.expand_path("../../../test", __dir__))
require "fileutils"
require "net/http"
require "tmpdir"
require "minitest"
require "support/postgresql"
require "support/redmine/instance"
require "support/redmine/pages"
require_relative "../failure"
require_relative "../program"
require_relative "../server"
require_relative "visitors"

module Bench
  module Redmine
    # Servers that run at once, each with an instance of Redmine with the same content, and get the same rounds of pages in turn.
    #
    # 1. CPU is that of the process tree, with programs that Redmine starts for a page (ImageMagick), without PostgreSQL.
    # 2. Memory is read after the same requests: PSS of the tree, and USS, the sum of each process's private memory.
    # 3. A ratio is the median of the rounds' ratios to the first server.
    class Comparison
      ROOT = File.expand_path("../../..", __dir__)
      PUMA = "puma -C - -b tcp://127.0.0.1:{port} -e production -w {workers} -t {threads}:{threads} {preload}"
      FIREBRICK = "serve {dir} -b tcp://127.0.0.1:{port} -w {workers} -t {threads}:{threads} -e production"
      SETTLE_SECONDS = 0.3
      # Redmine is a large app, and nothing is measured until all servers are ready.
      BOOT_SECONDS = 180

      Peer = Struct.new(:name, :instance, :server, :visitors, :cpu, :preemptions, :times, :pss, :uss, :pages, keyword_init: true)

      def initialize(workers:, threads:, clients:, rounds:, warm_up:, postgresql:, pages:, only:, servers:, without:)
        @shape = [workers, threads]
        @clients = clients
        @rounds = rounds
        @warm_up = warm_up
        @postgresql = postgresql
        @each_page = pages
        @pages = only ? ::Redmine::PAGES.grep(only) : ::Redmine::PAGES
        @commands = { "puma" => PUMA, "firebrick" => "#{Program.built('dist', 'release')} #{FIREBRICK}" }.except(*without).merge(servers)
      end

      def run
        raise Failure, "Redmine 5 is not installed: apt-get install redmine redmine-sqlite" unless ::Redmine.installed?

        @dir = Dir.mktmpdir("bench-redmine")
        @peers = prepare
        @peers.each { |peer| start(peer) }
        @warm_up.times { |number| in_turn(number) { |peer| warm_up(peer, number) } }
        @rounds.times { |number| in_turn(number) { |peer| measure(peer, number + 1000) } }
        # By then deferred work, such as replacing processes, is over.
        sleep 3
        @peers.each { |peer| memory(peer) }
        single if @each_page
        report
      ensure
        finish
      end

      private

      def prepare
        @cluster = Postgresql.new.start if @postgresql
        first = nil
        @commands.keys.map.with_index do |name, index|
          database = @cluster&.create("bench#{index}", template: first ? "bench0" : "template1")
          instance = first ? first.copy(database) : (first = ::Redmine::Instance.new(database)).build
          Peer.new(name: name, instance: instance, cpu: [], preemptions: [], times: [], pages: Hash.new { |hash, page| hash[page] = [] })
        end
      end

      def start(peer)
        serve(peer)
        peer.visitors = Visitors.new(peer.server.port, @clients)
      end

      def serve(peer)
        environment = ::Redmine::Instance::ENVIRONMENT.merge("FIREBRICK_LIB" => ENV["FIREBRICK_LIB"] || File.join(ROOT, "worker/lib"), "XDG_RUNTIME_DIR" => @dir)
        peer.server = Server.new(@commands.fetch(peer.name), log: File.join(@dir, "#{peer.name}.log"), env: environment)
        peer.server.start(peer.instance.dir, @shape, within: BOOT_SECONDS) { |port| Net::HTTP.get_response("127.0.0.1", "/login", port).code == "200" }
      end

      def warm_up(peer, number) = peer.visitors.round(@pages, number)

      def load(peer, number) = peer.visitors.round(@pages, number)

      def close(peer)
        peer.visitors&.finish
      rescue IOError
        nil
      end

      def in_turn(number, &measurement)
        (number.even? ? @peers : @peers.reverse).each(&measurement)
      end

      def measure(peer, number)
        before = costs(peer.server.tree)
        times = load(peer, number)
        sleep SETTLE_SECONDS
        [peer.cpu, peer.preemptions].zip(costs(peer.server.tree), before) { |list, now, earlier| list << ((now - earlier) / times.size) }
        peer.times.concat(times)
      end

      def costs(tree) = [tree.cpu_seconds, tree.preemptions.to_f]

      def memory(peer)
        rollups = peer.server.tree.living.map { |entry| File.read("/proc/#{entry.pid}/smaps_rollup") }
        sum = ->(*keys) { rollups.sum { |text| keys.sum { |key| text[/^#{key}:\s+(\d+)/, 1].to_i } } / 1024.0 }
        peer.pss = sum["Pss"]
        peer.uss = sum["Private_Dirty", "Private_Clean"]
      end

      # Measures each page separately; clock ticks are too coarse for one request.
      def single
        @pages.each do |page|
          3.times do |number|
            in_turn(number) do |peer|
              before = peer.server.tree.cpu_seconds
              4.times { peer.visitors.fetch(page) }
              peer.pages[page] << ((peer.server.tree.cpu_seconds - before) / 4)
            end
          end
        end
      end

      def report
        puts "#{@shape.join('x')} workers x threads, #{@clients} clients, #{@postgresql ? 'PostgreSQL' : 'SQLite'}, #{@pages.size} pages, #{@rounds} rounds after #{@warm_up} of warm-up", ""
        puts "| server | CPU ms/request | x CPU | quartiles | preemptions/request | PSS MiB | x PSS | USS MiB | p50 ms | p99 ms |", "|---|---:|---:|---|---:|---:|---:|---:|---:|---:|"
        base = @peers.first
        @peers.each do |peer|
          ratios = peer.cpu.zip(base.cpu).map { |own, other| own / other }.sort
          times = peer.times.sort
          puts format("| %s | %.2f | %.3f | %.3f to %.3f | %.1f | %.1f | %.3f | %.1f | %.1f | %.1f |", peer.name, median(peer.cpu) * 1000, median(ratios), quantile(ratios, 0.25), quantile(ratios, 0.75),
                      median(peer.preemptions), peer.pss, peer.pss / base.pss, peer.uss, quantile(times, 0.5) * 1000, quantile(times, 0.99) * 1000)
        end
        return unless @each_page

        puts "", "| page | #{@peers.map { |peer| "#{peer.name}, CPU ms" }.join(' | ')} |", "|---|#{'---:|' * @peers.size}"
        @pages.each { |page| puts "| `#{page}` | #{@peers.map { |peer| format('%.1f', median(peer.pages[page]) * 1000) }.join(' | ')} |" }
      end

      def median(values) = quantile(values.sort, 0.5)

      def quantile(sorted, part)
        at = part * (sorted.size - 1)
        (sorted[at.floor] + sorted[at.ceil]) / 2
      end

      def finish
        @peers&.each do |peer|
          close(peer)
          peer.server&.stop
          peer.instance.remove
        end
        @cluster&.finish
        FileUtils.remove_entry(@dir) if @dir
      end
    end
  end
end
