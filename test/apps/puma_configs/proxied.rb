# check: proxy_protocol=v1
# check: rack.allow_underscore_headers = true
# check: in requests: other methods get 501
# check: rack.early_hints = true
port 3000
set_remote_address proxy_protocol: :v1
allow_underscore_headers
supported_http_methods %w[GET HEAD POST]
early_hints
