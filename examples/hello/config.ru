# frozen_string_literal: true

# The smallest app there is: what every server can serve.

run ->(_env) { [200, { "content-type" => "text/plain" }, ["Hello from Firebrick\n"]] }
