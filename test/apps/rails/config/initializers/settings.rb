# frozen_string_literal: true

# Settings that a test chooses, beside those that `rails new` has written.
Rails.application.configure do
  config.force_ssl = ENV.key?("FORCE_SSL")
  config.assume_ssl = ENV.key?("ASSUME_SSL") if Rails::VERSION::STRING >= "7.1"
  config.hosts = ENV["HOSTS"].split(",") if ENV["HOSTS"]
  config.action_dispatch.x_sendfile_header = ENV["SENDFILE_HEADER"].presence if ENV.key?("SENDFILE_HEADER")
  config.action_cable.allowed_request_origins = [%r{\Ahttp://127\.0\.0\.1:\d+\z}]
  config.log_tags = [:request_id]
  config.x.greeting = "hello"
end
