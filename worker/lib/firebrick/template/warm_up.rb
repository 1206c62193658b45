# frozen_string_literal: true

require "firebrick/read_only"
require "firebrick/template/warm/priority"
require "firebrick/template/warm/request"
require "firebrick/template/warm/rounds"
require "firebrick/template/warm/scout"

module Firebrick
  class Template
    # Repeats recent requests of clients before workers are forked, so that the workers of a new release begin with
    # loaded code, filled caches and compiled methods (`reload.warm`).
    #
    # Contract:
    # 1. Nothing is repeated unless Active Record can be kept from writing, or the settings name the paths.
    # 2. A child process tries the requests first (Warm::Scout). If it leaves threads or connections behind, nothing is
    #    repeated here.
    # 3. It takes no longer than the limit and a few seconds, whatever the app does.
    # 4. Connections of known libraries are closed before the fork. Each worker repeats the requests once more, which
    #    opens its own.
    class WarmUp
      # Routes that a sentence names at most.
      NAMED = 3
      # The part of the time that the scout may use.
      SCOUTING = 0.4

      # lines:: the requests; anyway:: whether writes need not be prevented
      def initialize(app, base, lines, anyway:)
        @app = app
        @base = base
        @requests = lines.map { |text| Warm::Request.new(text) }
        @anyway = anyway
      end

      # Yields a sentence before the first request.
      #
      # limit:: in seconds
      #
      # @return [String] a sentence about it
      def run(limit)
        reason = refusal(limit)
        return reason if reason

        yield format("repeating recent requests for at most %.0f s", limit) if block_given?
        repeat(limit)
      end

      # Repeats each request once, if they have been repeated before.
      def run_once(limit)
        @rounds&.run_once(now + limit)
      end

      CANNOT = "no requests are repeated before the fork, because nothing keeps this app from writing: " \
               "reload.warm_paths names paths that may be"
      NO_TIME = "no requests are repeated before the fork, because loading the app has taken most of " \
                "timeouts.worker_boot"
      private_constant :CANNOT, :NO_TIME

      private

      # Returns why nothing is repeated; nil if something is.
      def refusal(limit)
        return CANNOT unless @anyway || ReadOnly.available?

        NO_TIME unless limit.positive?
      end

      def repeat(limit)
        began = now
        outcome = Warm::Scout.new(@app, @base, @requests, limit * SCOUTING).run
        return "no requests are repeated before the fork: #{outcome.refusal}" if outcome.refusal

        @rounds = Warm::Rounds.new(@app, @base, outcome.good)
        @rounds.run(began + limit)
        describe(outcome, now - began)
      end

      def now
        Process.clock_gettime(Process::CLOCK_MONOTONIC)
      end

      def describe(outcome, seconds)
        routes = outcome.good.map(&:route).uniq.size
        text = format("warmed by %<requests>d requests for %<routes>d routes (%<seconds>.1f s)",
                      requests: @rounds.requests, routes: routes, seconds: seconds)
        text + left_out(outcome.left_out)
      end

      def left_out(requests)
        return "" if requests.empty?

        routes = requests.map { |request, why| "#{request.route}: #{why}" }.uniq
        more = ", …" if routes.size > NAMED
        "; left out: #{routes.first(NAMED).join(', ')}#{more}"
      end
    end
  end
end
