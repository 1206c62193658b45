# frozen_string_literal: true

# Waits, then computes: threads help until the GVL is saturated, processes help further.
run(lambda do |_env|
  sleep 0.02
  sum = 0
  120_000.times { |number| sum += number }
  [200, { "content-type" => "text/plain" }, ["#{sum}\n"]]
end)
