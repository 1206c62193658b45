# env: RAILS_ENV=production APP_ROOT=.
# mkdir: tmp/sockets tmp/pids log
# check: workers = 3
# check: threads = 8:32
# check: tmp/sockets/puma.sock
# check: state_path
# check: puma.state
# check: log.error
if ENV["RAILS_ENV"] == "production"
  require "fileutils"
  app_root = File.expand_path(ENV["APP_ROOT"])
  num_workers = ENV["NUM_WEBS"].to_i > 0 ? ENV["NUM_WEBS"].to_i : 3
  workers num_workers.to_s
  threads 8, 32
  directory app_root
  rackup "#{app_root}/config.ru"
  environment "production"
  bind "unix://#{app_root}/tmp/sockets/puma.sock"
  pidfile "#{app_root}/tmp/pids/puma.pid"
  state_path "#{app_root}/tmp/pids/puma.state"
  stdout_redirect "#{app_root}/log/puma.log", "#{app_root}/log/puma.err.log", true
  preload_app!
end
