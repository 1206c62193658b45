# frozen_string_literal: true

require "json"

# Prices that go up and down, published to the stream "prices". The last ones are in a file, which any process can read.
class Ticker
  STREAM = "prices"
  FIRST = { "gold" => 3412.5, "silver" => 38.2, "copper" => 9.9 }.freeze

  def initialize(file)
    @file = file
  end

  def prices
    JSON.parse(File.read(@file))
  rescue Errno::ENOENT
    FIRST
  end

  # Changes a price, keeps all, and publishes the changed one. Returns it.
  def change(name, price)
    File.write("#{@file}.new", JSON.generate(prices.merge(name => price)))
    File.rename("#{@file}.new", @file)
    Firebrick::Hub.publish(STREAM, { name: name, price: price })
    price
  end

  # Changes one price by up to 1 %.
  def step(random = Random)
    name, price = prices.to_a.sample(random: random)
    change(name, (price * random.rand(0.99..1.01)).round(2))
  end
end
