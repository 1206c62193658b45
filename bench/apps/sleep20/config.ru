# frozen_string_literal: true

# Every request takes the same 20 ms: any spread in latency comes from queueing.
headers = { "content-type" => "text/plain" }.freeze
body = ["slept"].freeze

run(lambda do |_env|
  sleep 0.02
  [200, headers.dup, body]
end)
