# frozen_string_literal: true

module Bench
  module Planted
    # The faults, by name: what kind of code a deploy brings. The app looks for its own in FAULT.
    FAULTS = {
      "route-1.5x-slower" => "a page takes 1.5 times as long",
      "route-2x-slower" => "another page takes twice as long",
      "p99-2x-slower" => "one request in 25 of a page takes as much longer as the page's p99 was: the p99 doubles",
      "cpu-2x" => "a page computes twice as much",
      "rare-route-slower" => "a page with 3 % of the requests takes three times as long",
      "fails-1-in-50" => "one request of a page in 50 raises",
      "fails-1-in-500" => "one request in 500 raises, whatever page",
      "rare-route-fails" => "a page with 3 % of the requests always raises",
      "n-plus-1" => "a list makes a query for each of its 20 rows",
      "allocates-3x" => "a page allocates three times as many objects",
      "json-key-missing" => "a key is missing in JSON",
      "json-type" => "a number in JSON is a string",
      "header-lost" => "Cache-Control of a page is lost",
      "content-type" => "JSON is sent as text",
      "html-section-lost" => "a table of a page is lost",
      "status-404" => "a page is not found",
      "head-status" => "HEAD gets 405",
      "memory-60" => "a worker takes 60 % more memory",
      "leak" => "each request of a page leaks 200 KiB",
      "crash-50th" => "the worker dies at the 50th request of a page"
    }.freeze

    # The files of the app beside those of test/apps/rails.
    FILES = {
      "config/initializers/shop.rb" => <<~RUBY,
        FAULT = Rails.root.join("fault.txt").read.strip
        # Seconds: what the clients have measured.
        TAIL = Float(Rails.root.join("tail.txt").read)
        LEAKED = []
        COUNTED = Hash.new(0)
        Rails.application.routes.append do
          %w[list show data about rare].each { |name| get "shop/\#{name}" => "shop#\#{name}" }
        end
        HEAVY = "x" * (Integer(File.read("/proc/self/statm").split[1]) * 4096 * 7 / 10) if FAULT == "memory-60"
      RUBY
      "app/controllers/shop_controller.rb" => <<~'RUBY'
        class ShopController < ApplicationController
          before_action { response.headers["X-Release"] = FAULT }
          before_action { raise "planted" if FAULT == "fails-1-in-500" && rand(500).zero? }

          def list
            rows = Entry.order(:id).limit(20).to_a
            rows.each { |row| Entry.find(row.id) } if FAULT == "n-plus-1"
            spend(0.006)
            table = rows.map { |row| "<tr><td>#{row.id}</td><td>#{row.text}</td></tr>" }.join
            table = "<table class='rows'>#{table}</table>" unless FAULT == "html-section-lost"
            render html: "<html><body><h1>Rows</h1>#{table}<p id='at-#{rand(10_000)}'>#{Time.now.to_f}</p></body></html>".html_safe
          end

          def show
            spend(FAULT == "route-1.5x-slower" ? 0.018 : 0.01)
            sleep(TAIL) if FAULT == "p99-2x-slower" && rand(25).zero?
            raise "planted" if FAULT == "fails-1-in-50" && rand(50).zero?
            compute(FAULT == "cpu-2x" ? 2 : 1)
            LEAKED << ("x" * 200 * 1024) if FAULT == "leak"
            Process.kill(:KILL, Process.pid) if FAULT == "crash-50th" && (COUNTED[:show] += 1) >= 50 && !request.env.key?("firebrick.warmup")
            expires_in 10.seconds unless FAULT == "header-lost"
            render plain: "shown #{rand}"
          end

          def data
            spend(FAULT == "route-2x-slower" ? 0.016 : 0.006)
            values = { id: rand(1000), at: Time.now.iso8601, price: 1.5, tags: %w[a b], owner: { name: "ada", age: 36 } }
            values[:owner].delete(:age) if FAULT == "json-key-missing"
            values[:price] = "1.5" if FAULT == "json-type"
            return render(plain: values.to_json) if FAULT == "content-type"
            render json: values
          end

          def about
            return head(:method_not_allowed) if FAULT == "head-status" && request.head?
            return head(:not_found) if FAULT == "status-404"
            Array.new(FAULT == "allocates-3x" ? 12_000 : 4_000) { "x".dup }
            spend(0.004)
            render plain: "about"
          end

          def rare
            raise "planted" if FAULT == "rare-route-fails"
            spend(FAULT == "rare-route-slower" ? 0.03 : 0.01)
            render plain: "rare"
          end

          private

          # Times vary, as in any app.
          def spend(seconds) = sleep(seconds * (0.8 + (0.4 * rand)))

          def compute(times) = (times * 12_000).times { |number| number.to_s }
        end
      RUBY
    }.freeze

    # The page whose slowest requests become slower.
    TAILED = "/shop/show"

    # path => requests in a hundred
    MIX = { "/shop/list" => 27, "/shop/show" => 30, "/shop/data" => 25, "/shop/about" => 15, "/shop/rare" => 3 }.freeze
  end
end
