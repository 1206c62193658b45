# frozen_string_literal: true

require "net/http"
require_relative "../failure"

module Bench
  module Redmine
    # Clients without cookies, each with its own connection, that fetch public pages as fast as the server sends them.
    class Guests
      # Pages of Redmine's test data that need no login.
      PAGES = ["/", "/projects", "/projects/works", "/projects/works/activity?from=2024-03-06", "/projects/works/issues", "/issues/1", "/issues/8",
               "/projects/works/roadmap", "/projects/works/issues/calendar?year=2024&month=3", "/projects/works/issues/gantt?year=2024&month=3&months=3"].freeze
      HEADERS = { "Host" => "redmine.example", "Accept" => "text/html,*/*;q=0.8", "Accept-Encoding" => "identity", "Accept-Language" => "en" }.freeze

      def initialize(port, count)
        @port = port
        @count = count
      end

      # Returns the seconds that each request took that ended within these seconds.
      def slice(seconds, number)
        finish = now + seconds
        threads = Array.new(@count) do |index|
          Thread.new do
            Thread.current.report_on_exception = false
            guest(finish, Random.new((number * 1000) + index))
          end
        end
        threads.flat_map(&:value)
      end

      private

      def guest(finish, random)
        times = []
        Net::HTTP.start("127.0.0.1", @port, read_timeout: 60) do |http|
          while (began = now) < finish
            page = PAGES.sample(random: random)
            response = http.get(page, HEADERS)
            raise Failure, "#{page}: #{response.code}\n#{response.body[0, 500]}" unless response.code == "200"

            times << (now - began)
          end
        end
        times
      end

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end
