activate_control_app "tcp://127.0.0.1:0", { auth_token: "0123456789abcdef" } #=> control_token = (not shown)
threads 1, 2
quiet #=> log.access = off
debug if ENV["DEBUG_SERVER"]
