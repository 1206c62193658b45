plugin :systemd if ENV["NOTIFY_SOCKET"]
bind_to_activated_sockets #=> bind = systemd?optional=true
bind "tcp://127.0.0.1:9292"
workers 1
drain_on_shutdown #=> always so
force_shutdown_after 25 #=> timeouts.shutdown = 25
raise_exception_on_sigterm false #=> ignored
