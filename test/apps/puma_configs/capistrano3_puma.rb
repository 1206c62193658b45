# mkdir: shared/tmp/pids shared/tmp/sockets shared/log
# check: workers = 1
# check: threads = 1:16
# check: shared/tmp/sockets/puma.sock
# check: runs when this process ends
# check: ignored: the server itself is no gem in your bundle
app = File.expand_path("..", __dir__)
directory app
rackup "#{app}/config.ru"
environment "production"
tag ""
pidfile "#{app}/shared/tmp/pids/puma.pid"
state_path "#{app}/shared/tmp/pids/puma.state"
stdout_redirect "#{app}/shared/log/puma_access.log", "#{app}/shared/log/puma_error.log", true
threads 0, 16
bind "unix://#{app}/shared/tmp/sockets/puma.sock"
workers 0
restart_command "bundle exec puma"
prune_bundler
on_restart do
  puts "Refreshing Gemfile"
  ENV["BUNDLE_GEMFILE"] = ""
end
