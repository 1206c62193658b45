# frozen_string_literal: true

require "json"
require_relative "ticker"

ticker = Ticker.new(File.expand_path("prices.json", __dir__))
page = File.read(File.expand_path("ticker.html", __dir__))

Firebrick.service("ticker") do |service|
  ticker.step until service.wait(Float(ENV.fetch("TICKER_SECONDS", "1")))
end

run(lambda do |env|
  next [404, { "content-type" => "text/plain" }, ["Not Found\n"]] unless env["PATH_INFO"] == "/"

  # Before the prices are read, so that none is missed between reading and listening.
  position = Firebrick::Hub.position(Ticker::STREAM)
  events = Firebrick::Hub.events_path(Ticker::STREAM, position: position, path: "/live")
  data = JSON.generate({ prices: ticker.prices, events: events }).gsub("<", '\u003c')
  [200, { "content-type" => "text/html; charset=utf-8" }, [page.sub("null /* DATA */") { data }]]
end)
