# frozen_string_literal: true

require_relative "servers"

module Bench
  module Deploys
    # The memory cost of reloads in the settled state: the proportional set size of all processes, after the same requests, of a server
    # that was just started, after its first reload, and after more.
    class Memory
      # The largest ratio to a fresh start.
      GROWTH = 1.05
      WORKERS = 4
      # Requests before each reading, because workers write to shared pages until then.
      REQUESTS = 4000

      # An app of a usual size: libraries, and their data, some of which each request reads and adds to.
      LARGE = <<~'RUBY'
        %w[bundler cgi csv date digest drb erb etc fiddle fileutils find forwardable json logger net/http objspace open-uri openssl optparse
           ostruct pp pstore psych racc rdoc resolv rexml/document ripper securerandom set singleton socket stringio strscan tempfile time
           timeout tmpdir tsort uri webrick yaml zlib].each do |name|
          require name
        rescue LoadError
          nil # Not every Ruby has all of them.
        end
        VERSION = File.read(File.join(__dir__, "version.txt"))
        TEXT = { "content-type" => "text/plain" }.freeze
        ROUTES = Array.new(5_000) { |i| [%r{\A/things/#{i}/(\d+)\z}, "things#show#{i}"] }
        TRANSLATIONS = Array.new(150_000) { |i| ["en.some.longer.key.number#{i}", "A sentence that is as long as sentences usually are: #{i}"] }.to_h
        Row = Struct.new(:id, :name, :at, :tags)
        ROWS = Array.new(100_000) { |i| Row.new(i, "row #{i}", i * 0.5, ["a#{i % 7}", "b#{i % 11}"]) }
        SEEN = {}
        LOCK = Mutex.new
        run(lambda do |env|
          next [200, TEXT.merge("connection" => "close"), [VERSION]] if env["PATH_INFO"] == "/version"

          at = rand(ROWS.size)
          rows = ROWS[at, 50].map { |row| { id: row.id, name: row.name.upcase, tags: row.tags.join(","), text: TRANSLATIONS["en.some.longer.key.number#{row.id}"] } }
          # The cache of an app in a worker, bounded.
          LOCK.synchronize { SEEN[at % 500] = rows.size }
          [200, TEXT.dup, [rows.map(&:to_s).join("\n")]]
        end)
      RUBY

      class Large < Firebrick
        def initialize(**)
          super
          write("config.ru", LARGE)
        end
      end

      Reading = Struct.new(:front, :template, :workers) do
        def sum = front + template + workers
      end

      def initialize(rounds:)
        @rounds = rounds
      end

      # Returns whether memory after reloads is about that of a fresh start.
      def run
        server = Large.new(workers: WORKERS, threads: 5).start
        readings = (0..@rounds).filter_map do |reloads|
          server.deploy if reloads.positive?
          requests(server)
          reading(server).tap { |one| show(reloads, one) } if [0, 1, @rounds].include?(reloads)
        end
        growth = readings.drop(1).map { |one| one.sum / readings.first.sum }.max
        puts format("largest ratio to the fresh start: %<growth>.3f, %<allowed>.2f allowed", growth:, allowed: GROWTH)
        growth <= GROWTH
      ensure
        server&.stop
      end

      private

      def requests(server)
        url = "http://127.0.0.1:#{server.port}/"
        well = system(Firebrick::PROGRAM, "bench", url, "-n", REQUESTS.to_s, "-c", "20", %i[out err] => File::NULL)
        raise Failure, "#{REQUESTS} requests have not been answered" unless well
      end

      # Waits until no old process is left and memory no longer changes.
      def reading(server)
        deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 60
        calm = 0
        while calm < 10
          raise Failure, "the server has not settled in 60 s" if Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline

          calm = ProcessTree.new(server.pid).living.size == WORKERS + 2 ? calm + 1 : 0
          sleep 0.2
        end
        measure(server)
      end

      def measure(server)
        all = ProcessTree.new(server.pid).living
        template = all.find { |one| one.ppid == server.pid }
        pss = ->(some) { some.sum { |one| ProcessTree.pss_kib(one.pid) } / 1024.0 }
        workers = all.select { |one| one.ppid == template.pid }
        Reading.new(pss.call(all - workers - [template]), pss.call([template]), pss.call(workers))
      end

      def show(reloads, one)
        puts format("%<when>-16s all %<sum>.1f MiB: front %<front>.1f, template %<template>.1f, %<count>d workers %<workers>.1f",
                    when: reloads.zero? ? "fresh:" : "#{reloads} reload#{'s' if reloads > 1}:", sum: one.sum, **one.to_h, count: WORKERS)
      end
    end
  end
end
