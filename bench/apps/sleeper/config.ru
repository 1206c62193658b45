# frozen_string_literal: true

# Sleeps SLEEP seconds (10) for every path but /now.
seconds = Float(ENV.fetch("SLEEP", "10"))
headers = { "content-type" => "text/plain" }.freeze
body = ["slept"].freeze

run(lambda do |env|
  sleep seconds unless env["PATH_INFO"] == "/now"
  [200, headers.dup, body]
end)
