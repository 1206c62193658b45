# mkdir: tmp
# check: control = unix://tmp/pumactl.sock
# check: mapped: `control` and `control_token`
activate_control_app "unix://tmp/pumactl.sock", { no_token: true }
activate_control_app
port 3000
