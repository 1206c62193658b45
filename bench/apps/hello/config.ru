# frozen_string_literal: true

# The smallest response, which leaves only the server's own work.
headers = { "content-type" => "text/plain" }.freeze
body = ["Hello, World!"].freeze

run ->(_env) { [200, headers.dup, body] }
