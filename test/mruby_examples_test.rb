# frozen_string_literal: true

# The examples of mruby handlers, each started as its README says and used as by its users.

require "support/case"
require "support/backend"
require "support/redis_server"

class MrubyExamplesTest < Case
  parallel!

  include RedisServer

  ROOT = File.join(Server::ROOT, "examples")

  def setup
    mruby_only
  end

  # A server in the example's own directory.
  def example(name, **options)
    start(directory: File.join(ROOT, name), **options)
  end

  # A server for an example that is a single handler.
  def handler(name, **options)
    copied = { "handler.rb" => File.read(File.join(ROOT, name, "handler.rb")) }
    start(files: copied, settings: "[routes]\n\"/\" = \"handler.rb\"\n", workers: nil, threads: nil, **options)
  end

  it "covers every example, and each has a README" do
    names = Dir.children(ROOT).grep(/\Amruby-/).sort
    assert_equal %w[mruby-auth mruby-events mruby-fan-out mruby-json-redis mruby-rate-limit], names
    names.each { |name| assert File.file?(File.join(ROOT, name, "README.md")), name }
  end

  it "requires passwords in front of Sinatra" do
    own = example("mruby-auth")
    challenge = get("/", to: own)
    assert_equal [401, 'Basic realm="Members", charset="UTF-8"'], [challenge.status, challenge["www-authenticate"]]
    assert_equal "up\n", get("/up", to: own).body
    assert_equal "Hello, ada\n", get("/", to: own, headers: basic("ada:lovelace")).body
    wrong = Array.new(10) { get("/", to: own, headers: basic("ada:guess")).status }
    assert_equal [401] * 10, wrong
    assert_status 429, get("/", to: own, headers: basic("ada:lovelace")), "the right password after many guesses"
    assert_equal "up\n", get("/up", to: own).body
  end

  it "limits the rate of two servers together, counted in Redis" do
    with_redis do |url|
      servers = Array.new(2) { example("mruby-rate-limit", env: { "REDIS_URL" => url }, workers: nil, threads: nil) }
      first = get("/", to: servers[0], headers: { "X-Api-Key" => "mine" })
      assert_equal [200, "5"], [first.status, first["ratelimit-limit"]]
      found = Array.new(20) { |number| get("/", to: servers[number % 2], headers: { "X-Api-Key" => "mine" }).status }
      assert_includes found, 429
      assert_operator found.count(200), :<=, 10, "five per window, in at most two windows"
      assert_status 200, get("/", to: servers[1], headers: { "X-Api-Key" => "yours" })
    end
  end

  it "admits all clients when Redis is down, and logs it" do
    own = example("mruby-rate-limit", env: { "REDIS_URL" => "redis://127.0.0.1:1/0" }, workers: nil, threads: nil)
    assert_equal [200] * 8, Array.new(8) { get("/", to: own).status }
    assert_logged "the rate limit api is open", on: own
  end

  it "requests three services concurrently" do
    together = Queue.new
    services = Backend.new do |conn, req|
      # None responds before all have received their request.
      together << req.target
      wait_until("the others") { together.size == 3 }
      broken = req.target.start_with?("/reviews")
      conn.respond(broken ? "broken" : JSON.generate(path: req.target), status: broken ? "500 Oh" : "200 OK")
    end
    own = handler("mruby-fan-out", env: { "SERVICES" => services.origin })
    response = get("/products/7", to: own).json
    assert_equal({ "product" => { "path" => "/products/7" }, "price" => { "path" => "/prices/7" }, "reviews" => [] }, response)
    assert_status 404, get("/products/seven", to: own)
  ensure
    services&.close
  end

  it "sends events from Redis to listening clients" do
    with_redis do |url|
      own = handler("mruby-events", env: { "REDIS_URL" => url })
      listeners = Array.new(3) { connect(own).tap { |it| it.write(request("GET", "/events/news")) } }
      wait_until("everybody to listen") { post("/events/news", "hello\nyou", to: own).body == "3\n" }
      listeners.each { |it| assert_includes it.read_through("data: you\n\n"), "data: hello\ndata: you\n\n" }
      listeners.pop.close
      wait_until("one to be missed") { post("/events/news", "again", to: own).body == "2\n" }
      assert_equal "0\n", post("/events/other", "nobody", to: own).body
    end
  end

  private

  def basic(pair)
    { "Authorization" => "Basic #{[pair].pack('m0')}" }
  end
end
