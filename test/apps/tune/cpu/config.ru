# frozen_string_literal: true

# Computes in Ruby and does nothing else: processes help, up to the cores.
run(lambda do |_env|
  sum = 0
  120_000.times { |number| sum += number }
  [200, { "content-type" => "text/plain" }, ["#{sum}\n"]]
end)
