# frozen_string_literal: true

# Admits health checks, and requests with a password. After ten wrong passwords in a minute an address has to wait.

members = Htpasswd.new("people", "Members")
wrong = RateLimit.new(limit: 10, period: 60, name: "wrong passwords", key: ->(env) { env["REMOTE_ADDR"] })

lambda do |env|
  next [399, {}, []] if env["PATH_INFO"] == "/up"
  next wrong.call(env) if wrong.limited?(env["REMOTE_ADDR"])

  response = members.call(env)
  wrong.check(env["REMOTE_ADDR"]) if response[0] == 401 && env["HTTP_AUTHORIZATION"]
  response
end
