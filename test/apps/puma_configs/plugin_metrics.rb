# plugin: yabeda
# check: beside the workers: runs in a process beside the workers
# check: state_permission = 0600
port 3000
activate_control_app "unix://metrics.sock", { no_token: true }
state_permission 0o600
plugin :yabeda
