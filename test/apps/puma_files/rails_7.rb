max_threads_count = ENV.fetch("RAILS_MAX_THREADS") { 5 }
min_threads_count = ENV.fetch("RAILS_MIN_THREADS") { max_threads_count }
threads min_threads_count, max_threads_count #=> threads = 5:5
if ENV["RAILS_ENV"] == "production"
  require "etc"
  worker_count = Integer(ENV.fetch("WEB_CONCURRENCY") { Etc.nprocessors })
  workers worker_count if worker_count > 1
end
worker_timeout 3600 if ENV.fetch("RAILS_ENV", "development") == "development" #=> timeouts.worker = 3600
port ENV.fetch("PORT") { 3000 }
environment ENV.fetch("RAILS_ENV") { "development" } #=> environment = development
pidfile ENV.fetch("PIDFILE") { "tmp/pids/server.pid" } #=> pidfile = tmp/pids/server.pid
plugin :tmp_restart
