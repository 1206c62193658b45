# check: timeouts.keep_alive = 30
# check: timeouts.header = 15
# check: timeouts.worker = 45
# check: timeouts.worker_boot = 90
# check: timeouts.shutdown = 0
# check: limits.max_requests_per_connection = 100
persistent_timeout 30
first_data_timeout 15
worker_check_interval 10
worker_timeout 45
worker_boot_timeout 90
force_shutdown_after :immediately
max_keep_alive 100
idle_timeout 3600
enable_keep_alives true
drain_on_shutdown
