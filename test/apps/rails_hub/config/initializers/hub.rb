# frozen_string_literal: true

Rails.application.routes.append do
  %w[sign_in publish publish_entry forget_entry disconnect].each { |action| post "hub/#{action}" => "hub##{action}" }
  %w[head_of_page bearer].each { |action| get "hub/#{action}" => "hub##{action}" }
end
