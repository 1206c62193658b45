# frozen_string_literal: true

require "firebrick/template/boot_frames"
require "firebrick/template/configured"
require "firebrick/template/fiber_check"
require "firebrick/template/heap"
require "firebrick/template/own_requests"
require "firebrick/template/started"
require "firebrick/wire"

module Firebrick
  class Template
    Key = Wire::Boot

    # Loads the app and prepares the process for forking.
    class Boot
      include Configured
      include OwnRequests
      include Started

      attr_reader :scoreboard, :slot_len, :tag, :dir, :base

      # Returns the text of `failed`.
      def self.explain(error)
        BootFrames.explain(error)
      end

      def initialize(settings, scoreboard)
        @settings = settings
        @scoreboard = scoreboard
        ForkGuard.hold(scoreboard)
        @slot_len = Integer(one(Key::SLOT_LEN))
        @tag = one(Key::TAG)
        @dir = File.dirname(File.expand_path(one(Key::APP)))
      end

      # Boots the app. Returns facts for `booted`. Yields a sentence when the app is loaded and requests are to be
      # repeated.
      def run(&warming)
        @started = now
        @warming = warming
        prepare_process
        facts = watch_threads { load_and_warm_up }
        jobs = start_jobs
        tidy
        replay
        facts + [[Wire::Booted::MS, now - @started]] + jobs + Firebrick.services.facts
      end

      def out_of_band_gc?
        flag?(Key::OUT_OF_BAND_GC)
      end

      # Prepares a template that was a worker, with the app loaded and warm. Returns facts for `booted`.
      def run_again
        name_process
        Exchange.name = "template"
        Native.release_gaps
        Firebrick.run_hooks(:before_refork)
        start_jobs.tap { tidy }
      end

      private

      # Returns the monotonic clock in milliseconds.
      def now
        Process.clock_gettime(Process::CLOCK_MONOTONIC, :millisecond)
      end

      def one(key, default = nil)
        @settings.fetch(key, [default]).last || raise(ArgumentError, "boot: #{key} is missing")
      end

      def numbers(*keys)
        keys.map { |key| Integer(one(key)) }
      end

      def flag?(key)
        one(key, "0") == "1"
      end

      def prepare_process
        $stdout.sync = true
        write_reports
        ENV["RACK_ENV"] = one(Key::ENVIRONMENT)
        ENV["FIREBRICK_HUB"] = hub if hub
        name_process
        Dir.chdir(one(Key::DIR, "."))
        Template.set_up_bundler
        require "firebrick"
        Firebrick.services.others = @settings.fetch(Key::SERVICE, [])
      end

      # Sets the log for exceptions.
      def write_reports
        require "firebrick/report"
        Report.file, Report.request_id = [Key::ERROR_LOG, Key::REQUEST_ID].map { |key| @settings.fetch(key, []).last }
        Report.json = flag?(Key::JSON_LOG)
      end

      def name_process
        Process.setproctitle(["firebrick: template", ("[#{tag}]" unless tag.empty?)].compact.join(" "))
      end

      # Returns facts about the app.
      def load_and_warm_up
        apply_puma_file
        load_app
        facts_of_the_app + warm_up
      end

      def load_app
        require_rack
        @app = find_app
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
        # They need the gem rack. Loaded here, because workers share what the template has loaded.
        require "firebrick/accel_redirect"
        Exchange.name = "template"
        Exchange.detailed_errors = one(Key::ENVIRONMENT) == "development"
        @base = Environment.base(multithread: numbers(Key::THREADS_MIN, Key::THREADS_MAX, Key::FIBERS).max > 1,
                                 early_hints: flag?(Key::EARLY_HINTS), sendfile: @settings.fetch(Key::SENDFILE, []))
        Native.prepare(limited(@app), @base, options)
      end

      def tidy
        Heap.tidy(compact: flag?(Key::COMPACT))
      end
    end
  end
end
