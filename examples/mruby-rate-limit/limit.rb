# frozen_string_literal: true

# In front of the API: a limited number of requests per key, or per address for requests without a key.

url = ENV["REDIS_URL"]

RateLimit.new(
  limit: 5,
  period: 10,
  key: ->(env) { env["HTTP_X_API_KEY"] || env["REMOTE_ADDR"] },
  redis: url && Redis.new(url: url, timeout: 0.5),
  name: "api"
)
