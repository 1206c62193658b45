# frozen_string_literal: true

require "roda"
require_relative "gate"

class App < Roda
  plugin :streaming
  plugin :error_handler
  plugin :not_found
  plugin :json
  plugin :sessions, secret: "s" * 64

  error { |error| "sorry: #{error.message}" }
  not_found { "nothing here" }

  route do |r|
    r.root { "hello" }
    r.get("names", String) { |name| name }
    r.get("json") { { "a" => [1] } }
    r.get("raise") { raise "an error of the app" }
    r.get("visits") { (r.session["visits"] = r.session["visits"].to_i + 1).to_s }
    r.post("upload") { "#{r.params['file'][:filename]} #{r.params['file'][:tempfile].size}" }
    r.get "stream" do
      response["Content-Type"] = "text/event-stream"
      stream do |out|
        3.times do |i|
          Gate.wait("#{r.params['name']}-#{i}")
          out << "data: #{i}\n\n"
        end
      end
    end
  end
end

run App.freeze.app
