lowlevel_error_handler do |ex, env, status|
  Sentry.capture_exception(ex, extra: { env: env }) if defined?(Sentry)
  Rollbar.critical(ex) if defined?(Rollbar)
  [status || 500, { "content-type" => "text/plain" }, ["Something went wrong.\n"]]
end
log_requests true #=> log.access = "?-
http_content_length_limit 10 * 1024 * 1024 #=> limits.max_body = 10485760
supported_http_methods :any #=> in requests
