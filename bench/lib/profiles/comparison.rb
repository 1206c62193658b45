# frozen_string_literal: true

require "json"
require "net/http"
require "open3"
require_relative "../served_app"

module Bench
  module Profiles
    # The shares of an app's methods in profiles of two programs, taken in turn of the same worker under the same load.
    #
    # 1. Only samples with a frame of the app count, because rbspy also has those in which the worker waits for a request.
    # 2. A sample belongs to the innermost method of the app: rbspy does not know the names of functions in C.
    class Comparison
      include ServedApp

      APP = File.expand_path("app.ru", __dir__)
      HOTTEST = 10
      CLOSE = 0.03
      HZ = 100
      # Requests at a time, so that the worker never waits.
      CLIENTS = 2

      def initialize(rbspy:, rounds:, seconds:)
        @rbspy = rbspy
        @rounds = rounds
        @seconds = seconds
      end

      # Returns whether the shares are close.
      def run
        report(*in_folder("profiles") { profiles }.map { |samples| shares(samples) })
      end

      private

      # Returns the samples of each program.
      def profiles
        folder = File.join(@dir, "app").tap { |path| FileUtils.mkdir_p(path) }
        FileUtils.cp(APP, File.join(folder, "config.ru"))
        server = serve(folder, "-w 1 -t 1:1", [1, 1])
        under_load(server.port) { measured(folder, worker(server)) }
      ensure
        server&.stop
      end

      def worker(server)
        pids = server.tree.living.map(&:pid)
        pids.find { |pid| File.read("/proc/#{pid}/cmdline").start_with?("firebrick: worker 0") } or raise Failure, "no worker"
      end

      def under_load(port)
        loading = true
        clients = Array.new(CLIENTS) do
          Thread.new { Net::HTTP.start("127.0.0.1", port) { |http| http.get("/") while loading } }
        end
        yield
      ensure
        loading = false
        clients&.each(&:join)
      end

      def measured(folder, pid)
        Array.new(@rounds) { [own(folder), other(pid)] }.transpose.map { |rounds| rounds.flatten(1) }
      end

      def own(folder)
        samples([program, "profile", "#{@seconds}s", folder, "--cpu", "--hz", HZ.to_s, "--format", "speedscope", "-o"])
      end

      def other(pid)
        samples([@rbspy, "record", "--pid", pid.to_s, "--duration", @seconds.to_s, "--rate", HZ.to_s, "--format", "speedscope", "--silent",
                 "--raw-file", File.join(@dir, "raw"), "--file"])
      end

      # Returns the method of the app of each sample with its weight.
      def samples(command)
        file = File.join(@dir, "profile.json")
        text, status = Open3.capture2e({ "XDG_RUNTIME_DIR" => @dir }, *command, file)
        raise Failure, "#{command.join(' ')}:\n#{text}" unless status.success? && File.exist?(file)

        profile = JSON.parse(File.read(file))
        FileUtils.rm_f([file, File.join(@dir, "raw")])
        names = profile["shared"]["frames"].map { |frame| name_of(frame) }
        one = profile["profiles"].first
        one["samples"].zip(one["weights"]).map { |stack, weight| [stack.reverse_each.filter_map { |at| names[at] }.first, weight] }
      rescue Errno::ENOENT => e
        raise Failure, "#{e.message}: see bench/README.md"
      end

      # Returns the name of a method of the app; nil for all other frames.
      def name_of(frame)
        return unless frame["file"]&.end_with?("config.ru")

        frame["name"].sub(/\A(?:block|rescue|ensure) (?:\(\d+ levels\) )?in /, "").split(".").last
      end

      def shares(samples)
        sums = samples.each_with_object(Hash.new(0.0)) { |(name, weight), all| all[name] += weight if name }
        whole = sums.values.sum
        sums.transform_values { |sum| sum / whole }
      end

      def report(own, other)
        hottest = (own.keys | other.keys).max_by(HOTTEST) { |name| [own.fetch(name, 0), other.fetch(name, 0)].max }
        puts "| method | firebrick profile | rbspy | difference |", "|---|---:|---:|---:|"
        hottest.map do |name|
          one, two = [own, other].map { |shares| shares.fetch(name, 0) * 100 }
          puts format("| %s | %.1f %% | %.1f %% | %+.1f |", name, one, two, one - two)
          (one - two).abs <= CLOSE * 100
        end.all?
      end
    end
  end
end
