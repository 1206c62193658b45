# mkdir: tmp/pids
# check: tag = gitlab-puma-worker
# check: workers = 2
# check: timeouts.worker = 60
# check: ignored: the format of the access log is `log.format`
# check: runs in the template when a worker has exited
# check: bind = tcp://127.0.0.1:8080
require "json"
rackup "config.ru"
pidfile "tmp/pids/puma.pid"
state_path "tmp/pids/puma.state"
threads 1, 16
queue_requests false
bind "tcp://127.0.0.1:8080"
workers 2
on_restart { ENV.delete("GITLAB_RESTARTED") }
before_fork { GC.compact }
on_worker_boot { srand }
worker_timeout 60
wait_for_less_busy_worker 0.001
nakayoshi_fork false
lowlevel_error_handler do |error, env|
  [500, { "content-type" => "text/plain" }, ["#{error.class}\n"]]
end
log_formatter { |text| JSON.generate(timestamp: Time.now.utc, pid: $$, message: text) }
tag "gitlab-puma-worker"
on_worker_shutdown { GC.start }
after_worker_shutdown { |handle| warn "worker #{handle.index}" unless handle.process_status.success? }
