# frozen_string_literal: true

$LOAD_PATH.unshift(File.expand_path("../../../test", __dir__))
require "minitest"
require "support/rails_app"
require "support/server"
require_relative "clients"

module Bench
  module Planted
    # One server under load, and a reload for each fault.
    class Trial
      GOOD = "good"
      # Requests before the first reload, so that the old workers are warm.
      WARM_SECONDS = 15

      def initialize(only:, unchanged:, rate:, watch:, shadow:)
        @faults = only ? FAULTS.select { |name, _| name.match?(only) } : FAULTS
        @unchanged = unchanged
        @rate = rate
        @watch = watch
        @shadow = shadow
      end

      # Returns whether all faults were found and the unchanged app has passed.
      def run
        start
        found = @faults.keys.map { |name| plant(name) }
        alarms = (1..@unchanged).count { |number| !pass?(number) }
        puts "", "#{found.count(&:itself)} of #{found.size} faults found, #{alarms} false alarms in #{@unchanged} reloads of the unchanged app"
        found.all? && alarms <= @unchanged / 200.0 + 0.99
      ensure
        @clients&.stop
        @server&.finish
      end

      private

      def start
        settings = { reload: { watch: "#{@watch}s", shadow: "#{@shadow}s", on_difference: "undo", keep: 0 } }
        @server = ::Server.new(**RailsApp.options(workers: 2, threads: "3:3", binds: nil, args: ["-e", "production"], settings: settings,
                                                  env: { "RAILS_ENV" => "production", "RAILS_LOG_TO_STDOUT" => nil, "RAILS_LOG_LEVEL" => "fatal" },
                                                  files: FILES.merge("fault.txt" => GOOD, "tail.txt" => "0")))
        @server.start
        fill
        @clients = Clients.new(@server.address, @rate)
        sleep WARM_SECONDS
        puts "| fault | found | by | met it | after |", "|---|---|---|---:|---:|"
      end

      def fill
        Net::HTTP.start(*@server.address) do |http|
          page = http.get("/form")
          cookie = page["set-cookie"][/\A[^;]+/]
          token = page.body[/name="csrf-token" content="([^"]+)"/, 1]
          20.times do |number|
            form = URI.encode_www_form(text: "row #{number}", authenticity_token: token)
            response = http.post("/entries", form, "Cookie" => cookie)
            raise "no row can be made: #{response.code}" unless response.code == "302"
          end
        end
      end

      def reload(fault)
        File.write(@server.path("fault.txt"), fault)
        File.write(@server.path("tail.txt"), @clients.p99)
        @clients.take
        began = now
        out, err, code = @server.command_line("reload", @server.dir)
        [out, err, code, @clients.take, now - began]
      end

      def plant(name)
        out, err, code, count, took = reload(name)
        all = count.values.sum
        met = count[name] + count[:failed] + count[:lost]
        puts format("| %s | %s | %s | %.2f %% | %.0f s |", name, code.zero? ? "NO" : "yes", why(out, err), 100.0 * met / all, took)
        recover unless code != 0
        !code.zero?
      end

      # Goes back to the good release.
      def recover
        File.write(@server.path("fault.txt"), GOOD)
        [["set", "reload.shadow=0", "reload.watch=0", "--dir", @server.dir], ["reload", @server.dir], ["set", "--undo", "--dir", @server.dir]].each do |command|
          out, err, code = @server.command_line(*command)
          raise "#{command.join(' ')}: #{out}#{err}" unless code.zero?
        end
        sleep 2
      end

      def pass?(number)
        out, err, code, = reload(GOOD)
        puts "| unchanged #{number} | ALARM | #{why(out, err)} | | |" unless code.zero?
        code.zero?
      end

      def why(out, err)
        text = err.empty? ? out.lines.last(2).first.to_s : err
        text.lines.map(&:strip).reject(&:empty?).first(2).join(" ").delete_prefix("firebrick: ")[0, 160].tr("|", "/")
      end

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end
