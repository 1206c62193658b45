# frozen_string_literal: true

# Waits and does nothing else: threads help.
run(lambda do |_env|
  sleep 0.02
  [200, { "content-type" => "text/plain" }, ["slept\n"]]
end)
