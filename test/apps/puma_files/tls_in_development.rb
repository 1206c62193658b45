threads 1, 3
if ENV["LOCAL_TLS"]
  ssl_bind "127.0.0.1", "9443", key: "config/localhost.key", cert: "config/localhost.crt", verify_mode: "none"
else
  port 9292, "localhost" #=> host = localhost
end
early_hints false #=> rack.early_hints = false
