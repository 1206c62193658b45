# frozen_string_literal: true

# Who comes in: health checks, and those who have a password. After ten wrong ones in a minute an address has to wait.

members = Htpasswd.new("people", "Members")
wrong = RateLimit.new(limit: 10, period: 60, name: "wrong passwords", key: ->(env) { env["REMOTE_ADDR"] })

lambda do |env|
  next [399, {}, []] if env["PATH_INFO"] == "/up"
  next wrong.call(env) if wrong.limited?(env["REMOTE_ADDR"])

  answer = members.call(env)
  wrong.check(env["REMOTE_ADDR"]) if answer[0] == 401 && env["HTTP_AUTHORIZATION"]
  answer
end
