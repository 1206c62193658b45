# certificate: config/server
# check: bind = ssl://127.0.0.1:9292?key=config/server.key&cert=config/server.crt
bind "ssl://127.0.0.1:9292?key=config/server.key&cert=config/server.crt"
rack_url_scheme "https"
