# frozen_string_literal: true

# One app for all ways of serving: a text, a wait of 20 ms, computation, JSON from a Redis GET.
require "json"
require "redis"

TEXT = { "content-type" => "text/plain" }.freeze
JSON_TYPE = { "content-type" => "application/json" }.freeze
ROUNDS = Integer(ENV.fetch("CHOOSE_ROUNDS", "50000"))

run(lambda do |env|
  case env["PATH_INFO"]
  when "/wait"
    sleep 0.02
    [200, TEXT.dup, ["slept"]]
  when "/cpu"
    sum = 0
    ROUNDS.times { |number| sum += number }
    [200, TEXT.dup, [sum.to_s]]
  when "/redis"
    # One connection per thread, or per fiber.
    redis = (Thread.current[:redis] ||= Redis.new(url: ENV.fetch("REDIS_URL")))
    [200, JSON_TYPE.dup, [JSON.generate("greeting" => redis.get("greeting"))]]
  else
    [200, TEXT.dup, ["Hello, World!"]]
  end
end)
