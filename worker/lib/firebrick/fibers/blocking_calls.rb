# frozen_string_literal: true

require "rbconfig"

module Firebrick
  module Fibers
    # Logs the calls that have blocked a thread's loop (`rack.blocking_call`), with their place. The native part
    # (worker/native/src/fibers/blocking.rs) detects such a call and measures its duration.
    class BlockingCalls
      # Seconds until the same place is logged again.
      AGAIN = 60
      # The number of places that are remembered.
      MOST = 1_000
      # The part of a path before and after the name of an installed gem.
      GEM = %r{/gems/(?<name>[^/]+?)-\d[^/]*/}
      # Path prefixes of Ruby's own library.
      LIBRARY = [RbConfig::CONFIG["rubylibdir"], "<internal:"].freeze

      UNKNOWN = ["in an unknown place"].freeze

      # The backtrace of a loop that has been blocked since `since`. `waited`: its thread waited, without Ruby's lock.
      Sample = Struct.new(:since, :lines, :waited, :request)

      # When a place was last logged, and how often it was found since.
      Told = Struct.new(:at, :more)

      def initialize(clock: -> { Process.clock_gettime(Process::CLOCK_MONOTONIC) })
        @clock = clock
        @samples = {}
        @told = {}
      end

      # The loop of the watching thread.
      def watch
        while (away = Native.fiber_away)
          away.each do |number, since, thread, env, alarm|
            see(number, since, thread, env)
            Fibers.late(number, since, alarm) if alarm
          end
        end
      end

      def see(number, since, thread, env)
        waited = thread.stop? == true
        @samples[number] = Sample.new(since, thread.backtrace.to_a, waited, request(env))
      end

      # Handles a finished call. `doubtful`: the thread may only have waited for its turn, behind other threads or
      # programs, so the call counts only if it was seen waiting for something else. `served`: the env and the fiber of
      # its request.
      def ended(number, since, micros, doubtful, served)
        sample = sample_of(number, since)
        return false if doubtful && !sample&.waited

        env, fiber = served
        tell(micros, sample ? place(sample.lines) : near(fiber), env ? request(env) : sample&.request)
        true
      end

      private

      def sample_of(number, since)
        sample = @samples.delete(number)
        sample if sample && sample.since == since
      end

      # Logs a call, at most once a minute for each line of the app. `place`: the call and the app's line.
      def tell(micros, place, request)
        more = again(place.last) or return
        parts = [place.join, request, ("#{more} more here since it was last told" if more.positive?)]
        text = "blocking call of #{micros / 1000} ms #{parts.compact.join(', ')}"
        Report.log("firebrick: #{Exchange.name}: #{text}", level: "warning")
      end

      # Returns how many were not logged since the last one; nil if this one is not logged either.
      def again(place)
        now = @clock.call
        told = @told[place]
        if told && now - told.at < AGAIN
          told.more += 1
          return
        end
        @told.delete(place)
        @told.shift if @told.length >= MOST
        @told[place] = Told.new(now, 0)
        told ? told.more : 0
      end

      # Returns a text such as "in query of mysql2 (app/models/user.rb:12:in 'find')".
      def place(lines)
        lines = Exchange.app_lines.of(lines)
        return UNKNOWN if lines.empty?

        gem = lines.first[GEM, :name]
        ["in #{function(lines.first)}#{" of #{gem}" if gem} ", "(#{app_line(lines)})"]
      end

      # Returns the current place of the fiber, which has gone on after the call.
      def near(fiber)
        lines = fiber&.alive? ? Exchange.app_lines.of(fiber.backtrace.to_a) : []
        lines.empty? ? UNKNOWN : ["that ended before ", app_line(lines)]
      end

      def function(line)
        line[/in [`'](?:block in )?(?<name>.*)'\z/, :name] || line
      end

      def app_line(lines)
        lines.find { |line| !line.start_with?(*LIBRARY) && !line.match?(GEM) } || lines.first
      end

      def request(env)
        return unless env

        id = env["HTTP_X_REQUEST_ID"]
        "#{env['REQUEST_METHOD']} #{env['PATH_INFO']}#{", request #{id}" if id}"
      end
    end
  end
end
