# frozen_string_literal: true

rackup "config.ru"
pidfile "tmp/pids/web.pid"
state_path "tmp/pids/web.state"

stdout_redirect "log/web.stdout.log", "log/web.stderr.log", true
threads 4, 4
workers 3 #=> workers = 3
queue_requests false #=> always so
bind "unix://tmp/sockets/web.socket"

# Its own tools, where the app is there.
require_relative "../lib/puma_support"

on_restart { PumaSupport.call(:before_master_restart) }

options = { workers: 3 }

before_fork do #=> hook
  PumaSupport.watch(options) if defined?(::PumaSupport)
  PumaSupport.call(:before_fork)
end

on_worker_boot do |index|
  PumaSupport.call(:worker_start, index)
end

on_worker_shutdown { PumaSupport.call(:worker_stop) } #=> hook

preload_app!
tag "shop" #=> tag = shop
worker_timeout 60
wait_for_less_busy_worker ENV.fetch("BUSY_DELAY", 0.001).to_f #=> always so
nakayoshi_fork unless ENV["DISABLE_NAKAYOSHI"] == "true" #=> always so

json = ->(text) { %({"message":#{text.inspect}}) }
log_formatter { |text| json.call(text) } #=> ignored

lowlevel_error_handler do |error, env| #=> hook
  warn "#{error.class} at #{env && env['PATH_INFO']}"
  [500, {}, ["An error has occurred and reported in the system's low-level error handler."]]
end
