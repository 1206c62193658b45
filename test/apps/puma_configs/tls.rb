# certificate: config/server
# check: bind = ssl://0.0.0.0:9443?cert=config/server.crt&key=config/server.key&verify_mode=none&no_tlsv1_1=true
# check: bind = tcp://[::]:9292
port 9292
ssl_bind "0.0.0.0", "9443", cert: "config/server.crt", key: "config/server.key", verify_mode: "none",
                            no_tlsv1_1: true, reuse: true
