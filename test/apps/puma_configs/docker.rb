# check: bind = tcp://0.0.0.0:8080
# check: workers = auto
# check: log.access = -
# check: timeouts.shutdown = 25
# check: limits.max_body = 104857600
bind "tcp://0.0.0.0:8080"
workers "auto"
threads 2, 4
log_requests true
worker_shutdown_timeout 25
force_shutdown_after 20 if ENV["NEVER"]
http_content_length_limit 100 * 1024 * 1024
silence_single_worker_warning
