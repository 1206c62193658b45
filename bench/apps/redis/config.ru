# frozen_string_literal: true

# JSON from one Redis GET; one connection per thread, opened after the fork.
require "json"
require "redis"

headers = { "content-type" => "application/json" }.freeze

run(lambda do |_env|
  redis = (Thread.current[:redis] ||= Redis.new(url: ENV.fetch("REDIS_URL")))
  [200, headers.dup, [JSON.generate("greeting" => redis.get("greeting"), "ok" => true)]]
end)
