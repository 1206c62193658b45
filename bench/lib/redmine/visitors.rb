# frozen_string_literal: true

require "net/http"
require "uri"
require_relative "../failure"

module Bench
  module Redmine
    # Clients that are logged in to one server, each with its own connection, and fetch pages.
    class Visitors
      HOST = "redmine.example"

      # One client.
      class Visitor
        def initialize(port)
          @http = Net::HTTP.new("127.0.0.1", port)
          @http.read_timeout = 60
          @http.keep_alive_timeout = 5
          @http.start
          log_in
        end

        # Returns the seconds that a page took.
        def fetch(path)
          began = now
          response = @http.get(path, headers)
          raise Failure, "#{path}: #{response.code}\n#{response.body[0, 500]}" unless response.code == "200"

          now - began
        end

        def finish = @http.finish

        private

        def log_in
          page = @http.get("/login", "Host" => HOST)
          token = page.body[/name="csrf-token" content="([^"]+)"/, 1] or raise Failure, "no form to log in: #{page.code} #{page.body[0, 500]}"
          @cookie = page["set-cookie"][/\A[^;]+/]
          form = URI.encode_www_form("username" => "admin", "password" => "admin-secret", "authenticity_token" => token)
          response = @http.post("/login", form, headers.merge("Content-Type" => "application/x-www-form-urlencoded"))
          raise Failure, "the login failed: #{response.code}" unless response.code == "302"

          @cookie = response["set-cookie"][/\A[^;]+/]
        end

        def headers = { "Host" => HOST, "Cookie" => @cookie, "Accept" => "text/html,*/*;q=0.8", "Accept-Encoding" => "identity" }

        def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      end

      def initialize(port, count)
        @visitors = Array.new(count) { Visitor.new(port) }
      end

      # Each client fetches all pages in an order of its own. All servers get the same orders. Returns the times.
      def round(pages, number)
        threads = @visitors.map.with_index do |visitor, index|
          Thread.new do
            Thread.current.report_on_exception = false
            pages.shuffle(random: Random.new((number * 1000) + index)).map { |page| visitor.fetch(page) }
          end
        end
        threads.flat_map(&:value)
      end

      # Only the first client fetches.
      def fetch(page) = @visitors.first.fetch(page)

      def finish = @visitors.each(&:finish)
    end
  end
end
