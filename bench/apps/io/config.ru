# frozen_string_literal: true

# An I/O-bound app: waits 40 to 200 ms, as for a database or a remote service.
headers = { "content-type" => "text/plain" }.freeze
body = ["waited"].freeze

run(lambda do |_env|
  sleep rand(0.04..0.2)
  [200, headers.dup, body]
end)
