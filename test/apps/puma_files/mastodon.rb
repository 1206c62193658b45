# frozen_string_literal: true

persistent_timeout ENV.fetch("PERSISTENT_TIMEOUT", 20).to_i #=> timeouts.keep_alive = 20

max_threads_count = ENV.fetch("MAX_THREADS", 5).to_i
min_threads_count = ENV.fetch("MIN_THREADS", max_threads_count).to_i
threads min_threads_count, max_threads_count

if ENV["SOCKET"]
  bind "unix://#{ENV['SOCKET']}"
else
  bind "tcp://#{ENV.fetch('BIND', '127.0.0.1')}:#{ENV.fetch('PORT', 3000)}" #=> bind = tcp://127.0.0.1:3000
end

environment ENV.fetch("RAILS_ENV", "development")
workers     ENV.fetch("WEB_CONCURRENCY") { 2 }.to_i #=> workers = 2

preload_app!

if ENV["EXPORTER"] == "true"
  require "exporter_that_is_not_there"
end

on_worker_boot do
  ActiveRecord::Base.establish_connection if Object.const_defined?(:ActiveRecord)
end

set_remote_address(proxy_protocol: :v1) if ENV["PROXY_PROTO_V1"] == "true"

plugin :tmp_restart
