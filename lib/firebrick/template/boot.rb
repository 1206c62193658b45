# frozen_string_literal: true

module Firebrick
  class Template
    # Loads the app and prepares the process for forking.
    class Boot
      attr_reader :scoreboard, :slot_len, :tag, :dir

      # The text of `failed`.
      def self.explain(error)
        if error.is_a?(SystemExit)
          "the app called exit (#{error.status}) while it was loading\n    #{Array(error.backtrace).join("\n    ")}"
        else
          require "firebrick/report"
          Report.text(error)
        end
      end

      def initialize(settings, scoreboard)
        @settings = settings
        @scoreboard = scoreboard
        @slot_len = Integer(one("slot_len"))
        @tag = one("tag")
        @dir = File.dirname(File.expand_path(one("app")))
      end

      # Facts for `booted`.
      def run
        started = Process.clock_gettime(Process::CLOCK_MONOTONIC)
        prepare_process
        load_app
        warm_up
        Firebrick.run_hooks(:before_fork)
        tidy
        took = Process.clock_gettime(Process::CLOCK_MONOTONIC) - started
        { "ruby" => "#{RUBY_ENGINE} #{RUBY_VERSION}", "rack" => Rack.release, "ms" => (took * 1000).round }.to_a
      end

      private

      def one(key, default = nil)
        @settings.fetch(key, [default]).last || raise(ArgumentError, "boot: #{key} is missing")
      end

      def number(key)
        Integer(one(key))
      end

      def flag?(key)
        one(key, "0") == "1"
      end

      def prepare_process
        $stdout.sync = true
        ENV["RACK_ENV"] = one("environment")
        Process.setproctitle(["firebrick: template", ("[#{tag}]" unless tag.empty?)].compact.join(" "))
        require "bundler/setup" if ENV["BUNDLE_GEMFILE"] || File.file?("Gemfile") || File.file?("gems.rb")
        require "firebrick"
      end

      def load_app
        require_rack
        result = Rack::Builder.parse_file(one("app"))
        @app = result.is_a?(Array) ? result.first : result
        hand_over
      end

      def require_rack
        require "rack"
        require "rack/builder"
        # Rack::Lint uses URI without loading it; other servers load it.
        require "uri"
      rescue LoadError => e
        raise unless e.path == "rack"

        raise LoadError, "the gem rack is missing: add it to the Gemfile, or install it (gem install rack)"
      end

      def hand_over
        require "firebrick/environment"
        Exchange.name = "template"
        Exchange.detailed_errors = one("environment") == "development"
        threads = [number("threads_min"), number("threads_max")]
        @base = Environment.base(multithread: threads.last > 1, early_hints: flag?("early_hints"))
        Native.prepare(@app, @base, threads, limits, Rack.release.to_i >= 3)
      end

      def limits
        [number("max_head"), number("response_memory"), number("response_spool"), one("temp_dir")]
      end

      def warm_up
        paths = @settings.fetch("warmup", [])
        return if paths.empty?

        require "firebrick/template/warmup"
        Warmup.new(@app, @base).run(paths)
      end

      # Pages that are not written to after the fork stay shared.
      def tidy
        scan_strings
        3.times { GC.start }
        GC.compact if flag?("compact") && GC.respond_to?(:compact)
        Native.settle_heap
      end

      # Ruby notes in a String whether it is valid, the first time that it needs to know; workers would do so in each of
      # theirs.
      def scan_strings
        valid = String.instance_method(:valid_encoding?)
        ObjectSpace.each_object(String) { |string| valid.bind_call(string) }
      end
    end
  end
end
