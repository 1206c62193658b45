# check: in requests: sets REMOTE_ADDR
# check: bind = unix://tmp/app.sock?umask=0111&backlog=1024
# check: bind = systemd?optional=true
bind "unix://tmp/app.sock?umask=0111&backlog=1024"
bind_to_activated_sockets
set_remote_address header: "X-Real-IP"
rack_url_scheme "https"
io_selector_backend :auto
