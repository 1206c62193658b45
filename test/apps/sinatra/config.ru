# frozen_string_literal: true

require "sinatra/base"
require_relative "gate"

class App < Sinatra::Base
  enable :sessions, :logging
  set :session_secret, "s" * 64
  set :erb, escape_html: true

  helpers do
    def shout(text) = text.upcase
  end

  before { headers "x-before" => "yes" }

  get("/") { "hello" }
  get("/names/:name/?:second?") { "#{params[:name]} #{params[:second]}" }
  get("/files/*.*") { params[:splat].inspect }
  get("/template") { erb "<p><%= shout(params[:text]) %></p>" }
  get("/visits") { (session[:visits] = session[:visits].to_i + 1).to_s }
  get("/redirect") { redirect "/names/x" }
  get("/halt") { halt 418, { "x-halt" => "yes" }, "halted" }
  get("/raise") { raise "an error of the app" }
  get("/etag") { etag("v1") && "tagged" }
  get("/sent") { send_file File.expand_path("report.txt", __dir__), filename: "report.txt" }
  post("/upload") { "#{params[:file][:filename]} #{params[:file][:tempfile].size} #{params[:note]}" }
  put("/json") { request.body.read.reverse }

  get "/stream" do
    content_type "text/event-stream"
    stream do |out|
      3.times do |i|
        Gate.wait("#{params[:name]}-#{i}")
        out << "data: #{i}\n\n"
      end
    end
  end

  get "/endless" do
    content_type "text/event-stream"
    stream do |out|
      out.callback { Gate.open(params[:name]) }
      loop do
        out << "data: more\n\n"
        sleep 0.02
      end
    end
  end

  get "/hijack" do
    io = env["rack.hijack"].call
    io.write("HTTP/1.1 200 OK\r\nContent-Length: 8\r\nConnection: close\r\n\r\nhijacked")
    io.close
    [200, {}, []]
  end

  not_found { "nothing at #{request.path_info}" }
end

run App
