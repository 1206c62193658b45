# frozen_string_literal: true

Rails.application.routes.append do
  %w[sign_in publish publish_entry disconnect].each { |action| post "hub/#{action}" => "hub##{action}" }
end
