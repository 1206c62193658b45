# frozen_string_literal: true

# A body of 1 MiB: copying and flow control instead of parsing.
headers = { "content-type" => "application/octet-stream" }.freeze
body = [("0123456789abcdef" * 65_536).freeze].freeze

run ->(_env) { [200, headers.dup, body] }
