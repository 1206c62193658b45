# frozen_string_literal: true

# A CPU-bound app: sorts 100,000 random numbers under the GVL.
headers = { "content-type" => "text/plain" }.freeze
body = ["sorted"].freeze

run(lambda do |_env|
  Array.new(100_000) { rand }.sort
  [200, headers.dup, body]
end)
