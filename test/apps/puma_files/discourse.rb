# frozen_string_literal: true

if ENV["RAILS_ENV"] == "production"
  APP_ROOT = File.expand_path("..", __dir__) unless defined?(APP_ROOT)

  num_workers = ENV["NUM_WEBS"].to_i > 0 ? ENV["NUM_WEBS"].to_i : 4
  workers "#{num_workers}"
  threads 8, 32
  bind "unix://#{APP_ROOT}/tmp/sockets/shop.sock"
  preload_app!
else
  workers "2" #=> workers = 2
  threads "1", "4" #=> threads = 1:4
end

activate_control_app "auto", { no_token: true } #=> mapped

before_fork do
  Rails.application.eager_load! if defined?(Rails) && Rails.respond_to?(:application) && Rails.application
end
