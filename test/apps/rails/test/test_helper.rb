# frozen_string_literal: true

ENV["RAILS_ENV"] ||= "test"

# Debian installs Puma in Ruby's own folders, where it is found despite the Gemfile.
module NoPuma
  def resolve_feature_path(path) = path.start_with?("puma") ? nil : super
end
$LOAD_PATH.singleton_class.prepend(NoPuma) if ENV["CAPYBARA_SERVER"] == "puma"

require_relative "../config/environment"
require "rails/test_help"
require "firebrick/capybara"

Capybara.server = ENV["CAPYBARA_SERVER"].to_sym if ENV["CAPYBARA_SERVER"] && ENV["CAPYBARA_SERVER"] != "puma"
Capybara.default_max_wait_time = 30
