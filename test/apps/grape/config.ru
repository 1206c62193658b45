# frozen_string_literal: true

require "grape"
require_relative "gate"

class Events
  def initialize(name) = @name = name

  def each
    3.times do |i|
      Gate.wait("#{@name}-#{i}")
      yield "data: #{i}\n\n"
    end
  end
end

class API < Grape::API
  version "v1", using: :path
  format :json
  content_type :txt, "text/plain"

  rescue_from(Grape::Exceptions::Base) { |error| error!({ error: error.message }, error.status) }
  rescue_from(ArgumentError) { |error| error!({ error: error.message }, 422) }
  rescue_from(:all) { |_| error!({ error: "internal" }, 500) }

  get(:hello) { { hello: params[:name] } }

  params do
    requires :number, type: Integer, values: 1..10
    optional :list, type: [String]
  end
  post(:numbers) { { number: params[:number] * 2, list: params[:list] } }

  params { requires :file, type: File }
  post(:upload) { { name: params[:file][:filename], size: params[:file][:tempfile].size } }

  get(:fails) { raise ArgumentError, "no such thing" }
  get(:raises) { raise "a secret" }
  get(:nothing) { status(204) && body(false) }

  get :events do
    content_type "text/event-stream"
    stream Events.new(params[:name])
  end

  get(:sent) { sendfile File.expand_path("report.txt", __dir__) }
end

run API
