# frozen_string_literal: true

# Action Cable between pages of a real browser, over reloads.

require "net/http"
require "support/browser_case"
require "support/certificates"
require "support/rails_app"
require "support/redis_server"

class RailsCableTest < BrowserCase
  include RedisServer
  include Certificates

  def setup
    super
    rails_only
  end

  def cable(workers, *gems, **env)
    start(workers: workers, **RailsApp.options(*gems, env: env.transform_keys(&:to_s), settings: { reload: { watch: "0s", keep: "0s" } }))
  end

  def open_room(own)
    open_page.tap do |page|
      page.goto(own.url("/cable_page"))
      page.wait("connected == 1", within: 60)
    end
  end

  # A browser of its own, which accepts this key's certificate.
  def with_browser(key)
    spki = [OpenSSL::Digest::SHA256.digest(key.public_to_der)].pack("m0")
    browser = Browser.new(flags: ["--ignore-certificate-errors-spki-list=#{spki}"])
    yield browser
  ensure
    browser&.close
  end

  def said(page)
    page.evaluate("received.map(one => one.said).filter(Boolean)")
  end

  # Asserts that messages of one page, and of a request, reach all pages.
  def assert_talks(own, pages, about)
    texts = Array.new(10) { |i| "#{about} #{i}" }
    pages.first.evaluate("room.perform('whisper', { text: #{JSON.generate(about)} })")
    pages.first.wait("received.some(one => one.whispered == #{JSON.generate(about)})", within: 30)
    refute pages.last.evaluate("received.some(one => one.whispered == #{JSON.generate(about)})")
    texts.each_with_index do |text, i|
      next pages[i / 2 % 2].evaluate("room.perform('say', { text: #{JSON.generate(text)} })") if i.even?

      Net::HTTP.post_form(URI(own.url("/broadcast")), text: text)
    end
    pages.each do |page|
      wait_until("all that was said: #{said(page)}", within: 30) { (texts - said(page)).empty? }
      assert_equal texts.sort, said(page).select { |text| text.start_with?(about) }.sort, "each message once"
    end
  end

  # The sockets are closed with 1012, and the pages' own code connects again.
  def assert_reconnects(own, pages, nth)
    out, err, code = own.command_line("reload", own.dir)
    assert_equal 0, code, "#{out}#{err}"
    pages.each do |page|
      page.wait("closes.length == #{nth}", within: 30)
      assert_equal [1012], page.evaluate("closes.slice(-1)")
      page.wait("connected == #{nth + 1}", within: 90)
      assert_equal nth, page.evaluate("disconnected")
    end
  end

  def assert_room(own)
    pages = Array.new(2) { open_room(own) }
    assert_talks(own, pages, "before")
    assert_reconnects(own, pages, 1)
    assert_talks(own, pages, "after")
    pages.each { |page| assert_empty page.console.grep(/exception/) }
  end

  it "talks between pages, and again after a reload, with Redis between two workers" do
    with_redis { |url| assert_room(cable(2, "redis", REDIS_URL: url)) }
  end

  it "talks between pages, and again after a reload, within one worker" do
    assert_room(cable(1))
  end

  it "talks over HTTP/2, on the connection that has served the page" do
    cert, key = certificate(subject_alt_name: "IP:127.0.0.1", name: "own")
    files = { "own.pem" => cert.to_pem, "own.key" => key.to_pem,
              "config/initializers/own_origin.rb" => "Rails.application.config.action_cable.allowed_request_origins = [%r{\\Ahttps://127\\.0\\.0\\.1:\\d+\\z}]\n" }
    own = start(workers: 1, binds: ["ssl://127.0.0.1:0?cert=own.pem&key=own.key"], args: ["--no-http3"],
                **RailsApp.options(files:, settings: { reload: { watch: "0s", keep: "0s" } }))
    with_browser(key) do |browser|
      pages = Array.new(2) do
        browser.page.tap do |page|
          page.goto(own.url("/cable_page"))
          page.wait("connected == 1", within: 60)
        end
      end
      protocols = pages.map { |page| page.evaluate("performance.getEntriesByType('navigation')[0].nextHopProtocol") }
      assert_equal %w[h2 h2], protocols
      pages.first.evaluate("room.perform('say', { text: 'over HTTP/2' })")
      pages.each { |page| page.wait("received.some(one => one.said == 'over HTTP/2')", within: 30) }
      assert_equal 0, own.command_line("reload", own.dir).last
      pages.each do |page|
        page.wait("closes.length == 1", within: 30)
        assert_equal [1012], page.evaluate("closes")
        page.wait("connected == 2", within: 90)
      end
      # A page has one connection of HTTP/2, perhaps one more that it opened ahead; each WebSocket of HTTP/1.1 would have one of its own.
      assert_operator own.stats.dig("connections", "accepted"), :<=, 4
    end
  end

  it "sends pings, and refuses what is no subscription and another origin" do
    own = cable(1)
    page = open_room(own)
    page.evaluate("var denied = 0; consumer.subscriptions.create('NoChannel', { rejected: function () { denied += 1; } }); 1")
    page.wait("consumer.connection.monitor.pingedAt", within: 30)
    response = ask("GET /cable HTTP/1.1\r\nHost: #{own.address.join(':')}\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" \
                   "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nOrigin: http://elsewhere.test\r\n\r\n", to: own)
    assert_status 404, response
    assert_status 404, get("/cable", to: own)
  end
end
