# frozen_string_literal: true

require "rbconfig"

module Firebrick
  module Fibers
    # Names the calls in the log that have stopped a thread's loop (`rack.blocking_call`). When there was one, and how
    # long it took, is found natively (ext/worker/src/fibers/blocking.rs).
    class BlockingCalls
      # Seconds until the same place is told again.
      AGAIN = 60
      # Places that are remembered.
      MOST = 1_000
      # What a path of an installed gem has before the gem's name.
      GEM = %r{/gems/(?<name>[^/]+?)-\d[^/]*/}
      # Paths of Ruby's own library.
      LIBRARY = [RbConfig::CONFIG["rubylibdir"], "<internal:"].freeze

      UNKNOWN = ["in an unknown place"].freeze

      # Where a loop was, which has been away since `since`. `waited`: its thread waited, without Ruby's lock.
      Sample = Struct.new(:since, :lines, :waited, :request)

      # How often a place was found since it was told.
      Told = Struct.new(:at, :more)

      def initialize(clock: -> { Process.clock_gettime(Process::CLOCK_MONOTONIC) })
        @clock = clock
        @samples = {}
        @told = {}
      end

      # The body of the thread that sees where loops are.
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

      # `doubtful`: it may only have waited for its turn, behind other threads or programs. So it has to have been seen
      # waiting for something else. `served`: the env and the fiber of the request that is being served.
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

      # `place`: the call and the app's line. Of the latter it is told once in a while.
      def tell(micros, place, request)
        more = again(place.last) or return
        parts = [place.join, request, ("#{more} more here since it was last told" if more.positive?)]
        Report.log("firebrick: #{Exchange.name}: blocking call of #{micros / 1000} ms #{parts.compact.join(', ')}")
      end

      # How many were not told since the last one that was; nil: nor is this one.
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

      # "in query of mysql2 (app/models/user.rb:12:in 'find')".
      def place(lines)
        lines = Exchange.app_lines.of(lines)
        return UNKNOWN if lines.empty?

        gem = lines.first[GEM, :name]
        ["in #{function(lines.first)}#{" of #{gem}" if gem} ", "(#{app_line(lines)})"]
      end

      # Where the fiber is now, which has gone on when the call had ended.
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
