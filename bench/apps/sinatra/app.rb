# frozen_string_literal: true

# A typical app for the memory comparison: a framework, a few standard libraries and
# some data that lives as long as the process.
require "digest"
require "erb"
require "json"
require "logger"
require "net/http"
require "openssl"
require "optparse"
require "open-uri"
require "securerandom"
require "set"
require "sinatra/base"
require "time"
require "uri"
require "yaml"

ITEMS = Array.new(3_000) do |n|
  { id: n, name: "Item #{n}", tags: ["tag#{n % 7}", "tag#{n % 13}"], price: (n * 37) % 1_000 }
end

# Lists the first items and shows one of them.
class Shop < Sinatra::Base
  set :environment, :production
  disable :protection

  LIST = ERB.new(<<~HTML, trim_mode: "-")
    <!doctype html>
    <title>Shop</title>
    <ul>
    <%- items.each do |item| -%>
    <li><a href="/items/<%= item[:id] %>"><%= ERB::Util.h(item[:name]) %></a> <%= item[:price] %></li>
    <%- end -%>
    </ul>
  HTML

  get "/" do
    LIST.result_with_hash(items: ITEMS.first(20))
  end

  get "/items/:id" do
    item = ITEMS[Integer(params[:id], 10)] or halt 404
    content_type :json
    JSON.generate(item)
  end
end
