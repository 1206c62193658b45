# frozen_string_literal: true

# Waits a little, and leaks memory with every request.
KEPT = [] # rubocop:disable Style/MutableConstant

run(lambda do |_env|
  sleep 0.004
  KEPT << ("x" * 150_000)
  [200, { "content-type" => "text/plain" }, ["kept\n"]]
end)
