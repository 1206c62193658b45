# frozen_string_literal: true

# An app with a dozen methods that take different shares of its time.

require "digest"
require "erb"
require "json"

# The work of a page.
module Work
  ITEMS = Array.new(60) { |i| { "id" => i, "name" => "item #{i}", "tags" => %w[a b c], "price" => i * 1.5 } }
  TEMPLATE = ERB.new("<ul><% ITEMS.each do |item| %><li><%= item['name'] %> <%= escape(item['price'].to_s) %></li><% end %></ul>")

  module_function

  def page = [render, parse, sort, digest, search, build, sum, words].map(&:size).sum
  def render = TEMPLATE.result(binding)
  def escape(text) = text.gsub("&", "&amp;").gsub("<", "&lt;")
  def parse = JSON.parse(serialise)
  def serialise = JSON.generate(ITEMS)
  def sort = ITEMS.sort_by { |item| [-item["price"], item["name"]] }
  def digest = Digest::SHA256.hexdigest(serialise * 4)
  def search = ITEMS.select { |item| item["name"].match?(/5|7/) }.to_a
  def build = (1..400).map { |i| "row #{i}: #{i * i}" }.join("\n")
  def sum = Array.new(300) { |i| fib(i % 12) }
  def fib(place) = place < 2 ? place : fib(place - 1) + fib(place - 2)
  def words = build.split(/\W+/).tally.sort_by(&:last).first(20)
end

run ->(_) { [200, { "content-type" => "text/plain" }, [Work.page.positive? ? "done" : ""]] }
