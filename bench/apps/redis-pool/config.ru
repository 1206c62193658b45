# frozen_string_literal: true

# JSON from one Redis GET, with a pool of five connections for all threads, as most apps have it.
require "json"
require "redis"
require "connection_pool"

headers = { "content-type" => "application/json" }.freeze
# Connections are opened at first use, which is after the fork.
pool = ConnectionPool.new(size: 5, timeout: 10) { Redis.new(url: ENV.fetch("REDIS_URL")) }

run(lambda do |_env|
  greeting = pool.with { |redis| redis.get("greeting") }
  [200, headers.dup, [JSON.generate("greeting" => greeting, "ok" => true)]]
end)
