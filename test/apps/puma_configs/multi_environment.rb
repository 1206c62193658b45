# env: RAILS_ENV=staging
# check: workers = 2
# check: port = 4000
# check: overruled by line 12
rails_env = ENV.fetch("RAILS_ENV", "development")
environment rails_env
threads 1, 5
workers 1
case rails_env
when "development" then port 3000
when "staging"
  workers 2
  port 4000
else
  workers 4
  bind "unix:///run/app/puma.sock"
end
