# frozen_string_literal: true

# The smallest Rack app.

run ->(_env) { [200, { "content-type" => "text/plain" }, ["Hello from Firebrick\n"]] }
