# env: SOCKET=tmp/puma.sock MAX_THREADS=5
# check: bind = unix://tmp/puma.sock
# check: timeouts.keep_alive = 20
# check: hook: runs in each worker before it takes requests
# check: hook: makes the response when the app raises
persistent_timeout ENV.fetch("PERSISTENT_TIMEOUT") { 20 }.to_i
threads_count = ENV.fetch("MAX_THREADS") { 5 }.to_i
threads threads_count, threads_count
if ENV["SOCKET"]
  bind "unix://#{ENV['SOCKET']}"
else
  bind "tcp://#{ENV.fetch('BIND', '127.0.0.1')}:#{ENV.fetch('PORT', 3000)}"
end
environment ENV.fetch("RAILS_ENV") { "development" }
workers ENV.fetch("WEB_CONCURRENCY") { 2 }.to_i
preload_app!
on_worker_boot { $redis = :connected }
on_worker_shutdown { |index| $redis = nil }
lowlevel_error_handler { |_error| [500, {}, ["Gone\n"]] }
plugin :tmp_restart
