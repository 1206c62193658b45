# frozen_string_literal: true

require "firebrick/template/warm/connections"

module Firebrick
  class Template
    module Warm
      # Sends the requests to the app in rounds until one is hardly faster than the ones before, or the time is over.
      class Rounds
        # A round counts as faster if it takes less than this part of the fastest one.
        FASTER = 0.95
        # Rounds at least: code is compiled, and caches of caches are filled, after the first ones.
        LEAST = 4
        # YJIT compiles a method at its 30th call.
        LEAST_COMPILED = 30
        MOST = 200

        # The number of rounds, and of requests.
        attr_reader :count, :requests

        def initialize(app, base, requests)
          @app = app
          @base = base
          @waiting = requests
          @count = @requests = 0
        end

        # deadline:: by the monotonic clock, in seconds
        def run(deadline)
          ReadOnly.run_everywhere { Warm.in_background { settle(deadline) } }
        ensure
          Connections.close
        end

        # Sends each request once more.
        def run_once(deadline)
          ReadOnly.run_everywhere { round(deadline) }
        end

        private

        def settle(deadline)
          fastest = nil
          until @count >= MOST || @waiting.empty?
            took = round(deadline) or break
            break if @count >= least && took > fastest * FASTER

            fastest = [fastest, took].compact.min
          end
        end

        def now
          Process.clock_gettime(Process::CLOCK_MONOTONIC)
        end

        def least
          Yjit.enabled? ? LEAST_COMPILED : LEAST
        end

        # Returns the seconds that it took; nil if the time is over.
        def round(deadline)
          began = now
          @waiting = @waiting.select do |request|
            return nil if now >= deadline

            @requests += 1
            repeat?(request)
          end
          @count += 1
          now - began
        end

        # Returns whether the request ended as well as before.
        def repeat?(request)
          request.call(@app, @base).to_i.between?(1, 499)
        rescue StandardError, ScriptError, SystemStackError, NoMemoryError, SystemExit
          false
        end
      end
    end
  end
end
