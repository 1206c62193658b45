# check: environment = production
# check: bind = tcp://127.0.0.1:3002
#!/usr/bin/env puma
environment "production"
bind "tcp://127.0.0.1:3002"
threads "0", "4"
