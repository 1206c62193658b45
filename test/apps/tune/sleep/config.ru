# frozen_string_literal: true

# Only waits: threads help.
run(lambda do |_env|
  sleep 0.02
  [200, { "content-type" => "text/plain" }, ["slept\n"]]
end)
