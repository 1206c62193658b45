# check: control = tcp://127.0.0.1:9293, control_token = (not shown)
# missing: s3cret
activate_control_app "tcp://127.0.0.1:9293", { auth_token: "s3cret-token-of-sixteen" }
port 3000
