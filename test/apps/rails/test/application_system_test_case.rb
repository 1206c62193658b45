# frozen_string_literal: true

require "test_helper"

class ApplicationSystemTestCase < ActionDispatch::SystemTestCase
  driven_by :selenium, using: :headless_chrome, screen_size: [1000, 800] do |options|
    options.binary = ENV["CHROMIUM"] if ENV["CHROMIUM"]
    %w[--no-sandbox --disable-gpu --disable-dev-shm-usage --no-proxy-server].each { |flag| options.add_argument(flag) }
  end
end
