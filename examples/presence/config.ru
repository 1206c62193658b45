# frozen_string_literal: true

require "json"
require "rack"
require "securerandom"

STREAM = "page"
page = File.read(File.expand_path("here.html", __dir__))

run(lambda do |env|
  request = Rack::Request.new(env)
  next [404, { "content-type" => "text/plain" }, ["Not Found\n"]] unless request.path_info == "/"

  # All tabs of a browser are one visitor.
  visitor = request.cookies["visitor"] || SecureRandom.hex(8)
  name = request.params["name"].to_s[0, 40]
  name = "Visitor #{visitor[0, 4]}" if name.strip.empty?
  # Before the members are read, so that none is missed between reading and listening.
  position = Firebrick::Hub.position(STREAM)
  token = Firebrick::Hub.presence_token(STREAM, id: visitor, info: { name: name })
  events = Firebrick::Hub.events_path(STREAM, position: position, presence: token, path: "/live")
  data = JSON.generate({ me: visitor, members: Firebrick::Hub.presence(STREAM), events: events }).gsub("<", '\u003c')
  headers = { "content-type" => "text/html; charset=utf-8", "cache-control" => "no-store",
              "set-cookie" => "visitor=#{visitor}; path=/; httponly; samesite=lax" }
  [200, headers, [page.sub("null /* DATA */") { data }]]
end)
