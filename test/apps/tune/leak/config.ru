# frozen_string_literal: true

# Waits a little, and keeps something of every request for ever.
KEPT = [] # rubocop:disable Style/MutableConstant

run(lambda do |_env|
  sleep 0.004
  KEPT << ("x" * 150_000)
  [200, { "content-type" => "text/plain" }, ["kept\n"]]
end)
