# frozen_string_literal: true

# One request in three computes (see ../cpu), the other two wait (see ../io).
headers = { "content-type" => "text/plain" }.freeze
body = ["mixed"].freeze

run(lambda do |_env|
  if rand(3).zero?
    Array.new(100_000) { rand }.sort
  else
    sleep rand(0.04..0.2)
  end
  [200, headers.dup, body]
end)
