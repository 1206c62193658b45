# check: timeouts.worker = 3600
# check: environment = development
worker_timeout 3600 if ENV.fetch("RAILS_ENV", "development") == "development"
threads 5, 5
port 3000
environment ENV.fetch("RAILS_ENV") { "development" }
