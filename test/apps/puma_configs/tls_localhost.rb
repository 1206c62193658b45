# check: https = true
# check: ssl://localhost:3001
port 3000, "127.0.0.1"
if ENV.fetch("RAILS_ENV", "development") == "development"
  ssl_bind "localhost", "3001"
end
