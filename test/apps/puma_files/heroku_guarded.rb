workers ENV.fetch("WEB_CONCURRENCY", 0) #=> workers = 1
threads 0, 5 #=> threads = 1:5
rackup DefaultRackup if defined?(DefaultRackup)
port ENV.fetch("PORT", 5000)
environment ENV.fetch("RACK_ENV", "production")
first_data_timeout 20 #=> timeouts.header = 20
persistent_timeout 95 #=> timeouts.keep_alive = 95
enable_keep_alives(false) if ENV["DYNO"]
