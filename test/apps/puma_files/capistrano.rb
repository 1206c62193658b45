#!/usr/bin/env puma

directory File.expand_path("..", __dir__) #=> mapped
rackup "config.ru"
environment "production" #=> environment = production

tag "" if false

pidfile "tmp/pids/puma.pid"
state_path "tmp/pids/puma.state" #=> state_path = tmp/pids/puma.state
stdout_redirect "log/puma_access.log", "log/puma_error.log", true #=> log.error = log/puma_error.log

threads 0, 16 #=> threads = 1:16

bind "unix://tmp/sockets/puma.sock" #=> bind = unix://tmp/sockets/puma.sock

workers 0

restart_command "bundle exec puma" #=> ignored
prune_bundler #=> ignored

on_restart do #=> beside the workers
  puts "Refreshing Gemfile"
  ENV["BUNDLE_GEMFILE"] = ""
end
