# frozen_string_literal: true

Rails.application.routes.draw do
  root "pages#show"
  get "up" => "pages#up" unless Rails::VERSION::STRING >= "7.1"
  get "up" => "rails/health#show" if Rails::VERSION::STRING >= "7.1"
  get "form" => "forms#new"
  post "form" => "forms#create"
  get "notice" => "forms#saved"
  get "cookies/set" => "cookies#set"
  get "cookies/show" => "cookies#show"
  match "echo" => "requests#echo", via: :all
  %w[fresh fails hints].each { |action| get "requests/#{action}" => "requests##{action}" }
  post "requests/digest" => "requests#digest"
  %w[events endless].each { |action| get "streams/#{action}" => "streams##{action}" }
  get "templates/show" => "templates#show"
  %w[sent data accelerated].each { |action| get "files/#{action}" => "files##{action}" }
  %w[long versioned asked own default].each { |action| get "kept/#{action}" => "kept##{action}" }
  resources :documents, only: %i[new create show]
  get "cable_page" => "pages#cable"
  get "action_cable.js" => "pages#cable_script"
  post "broadcast" => "requests#broadcast"
  resources :entries, only: %i[index create]
end
