# frozen_string_literal: true

# In front of the API: so many requests for each key, or for each address that has none.

url = ENV["REDIS_URL"]

RateLimit.new(
  limit: 5,
  period: 10,
  key: ->(env) { env["HTTP_X_API_KEY"] || env["REMOTE_ADDR"] },
  redis: url && Redis.new(url: url, timeout: 0.5),
  name: "api"
)
