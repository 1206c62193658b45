# frozen_string_literal: true

require "net/http"
require_relative "app"

module Bench
  module Planted
    # Clients that ask for the pages of the mix at a rate, and count which release answers.
    class Clients
      THREADS = 12

      def initialize(address, rate)
        @host, @port = address
        @every = THREADS.fdiv(rate)
        @pages = MIX.flat_map { |path, part| [path] * part }
        @count = Hash.new(0)
        @tailed = []
        @lock = Mutex.new
        @threads = Array.new(THREADS) { |index| Thread.new { ask(Random.new(index)) } }
      end

      # Returns the number of responses by release since the last call; nil: failures.
      def take
        @lock.synchronize { @count.dup.tap { @count.clear } }
      end

      # Returns the 99th percentile of the response time of TAILED since the last call, in seconds.
      def p99
        times = @lock.synchronize { @tailed.dup.tap { @tailed.clear } }.sort
        times.fetch(times.size * 99 / 100)
      end

      def stop
        @stopping = true
        @threads.each(&:join)
      end

      private

      def ask(random)
        http = Net::HTTP.new(@host, @port)
        http.read_timeout = 20
        following = now
        until @stopping
          count(request(http, random))
          following = [following + @every, now - 0.2].max
          sleep([following - now, 0].max)
        end
      ensure
        http&.finish if http&.started?
      end

      def request(http, random)
        http.start unless http.started?
        path = @pages.sample(random: random)
        began = now
        # Monitors ask with HEAD.
        response = random.rand(10).zero? && path == "/shop/about" ? http.head(path) : http.get(path)
        @lock.synchronize { @tailed << (now - began) } if path == TAILED
        response["x-release"] || (response.code.to_i >= 500 ? :failed : :other)
      rescue SystemCallError, IOError, Net::ProtocolError, Timeout::Error
        http.finish if http.started?
        :lost
      end

      def count(release)
        @lock.synchronize { @count[release] += 1 }
      end

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end
