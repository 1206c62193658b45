# frozen_string_literal: true

# Only computes in Ruby: processes help, up to the number of cores.
run(lambda do |_env|
  sum = 0
  120_000.times { |number| sum += number }
  [200, { "content-type" => "text/plain" }, ["#{sum}\n"]]
end)
