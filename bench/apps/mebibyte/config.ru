# frozen_string_literal: true

# A body of 1 MiB: copying and flow control instead of parsing.
# With its length, which Unicorn does not add: wrk treats a response that ends with the connection as an error.
headers = { "content-type" => "application/octet-stream", "content-length" => "1048576" }.freeze
body = [("0123456789abcdef" * 65_536).freeze].freeze

run ->(_env) { [200, headers.dup, body] }
