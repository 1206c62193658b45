# frozen_string_literal: true

# Responds at once, except for STALL_FOR seconds (1) in every STALL_EVERY seconds (10): then all requests wait for the end of the
# stall, as during a garbage collection or when a disk hangs.
every = Float(ENV.fetch("STALL_EVERY", "10"))
lasting = Float(ENV.fetch("STALL_FOR", "1"))
headers = { "content-type" => "text/plain" }.freeze
body = ["Hello, World!"].freeze

run(lambda do |_env|
  since = Process.clock_gettime(Process::CLOCK_MONOTONIC) % every
  sleep lasting - since if since < lasting
  [200, headers.dup, body]
end)
