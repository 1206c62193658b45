# env: PORT=5000 WEB_CONCURRENCY=3 RACK_ENV=production
# check: workers = 3
# check: threads = 5:5
# check: port = 5000
# check: [::]:5000
workers Integer(ENV["WEB_CONCURRENCY"] || 2)
threads_count = Integer(ENV["RAILS_MAX_THREADS"] || 5)
threads threads_count, threads_count
preload_app!
rackup      DefaultRackup if defined?(DefaultRackup)
port        ENV["PORT"]     || 3000
environment ENV["RACK_ENV"] || "development"
on_worker_boot { ActiveRecord::Base.establish_connection if defined?(ActiveRecord) }
