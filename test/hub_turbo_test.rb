# frozen_string_literal: true

# Turbo itself, in two windows of Chromium, on a page of Rails: its streams over Action Cable and over Server-Sent Events go on over reloads,
# killed workers and upgrades, and those over events over a network that is down as well.

require "json"
require "support/browser_case"
require "support/hub_app"
require "support/relay"
require_relative "../worker/lib/firebrick/hub/publisher"

class HubTurboTest < BrowserCase
  include HubApp

  # script/setup fetches it.
  TURBO = File.join(Server::ROOT, "test/npm/node_modules/@hotwired/turbo-rails/app/assets/javascripts/turbo.js")
  LISTS = %w[cable events].freeze
  # Seconds without a network. Browsers try events again every few seconds.
  DOWN = Integer(ENV.fetch("TURBO_DOWN", 3))

  def setup
    super
    skip "Turbo is not here (script/setup test fetches it with npm)" unless File.exist?(TURBO)
  end

  def teardown
    @relay&.close
    super
  end

  # The page has a list for each stream.
  def files
    {
      "public/turbo.js" => File.read(TURBO),
      "config/cable.yml" => "production: { adapter: firebrick }\n",
      "config/initializers/live.rb" => "Rails.application.routes.append { get 'live' => 'live#show' }\n",
      "app/channels/application_cable/connection.rb" => "module ApplicationCable\n  class Connection < ActionCable::Connection::Base\n  end\nend\n",
      "app/controllers/live_controller.rb" => <<~RUBY
        class LiveController < ApplicationController
          def show
            render inline: <<~HTML
              <!doctype html><title>Live</title><script type="module" src="/turbo.js"></script>
              <turbo-cable-stream-source channel="Turbo::StreamsChannel" signed-stream-name="#{HubApp.signed('cable')}"></turbo-cable-stream-source>
              <%= firebrick_stream_source "events" %>
              <ol id="cable"></ol><ol id="events"></ol>
            HTML
          end
        end
      RUBY
    }
  end

  def launch_live
    settings = { hub: { path: "/cable" }, reload: { watch: "0s", keep: "0s" } }
    launch(app: nil, workers: 2, **RailsApp.options(files: files, env: { "FIREBRICK_HUB_SECRET" => SECRET, "RAILS_SERVE_STATIC_FILES" => "1" }, settings: settings))
  end

  # A window whose streams are both connected.
  def window
    open_page.tap do |page|
      page.send(:command, "Page.navigate", { url: "http://127.0.0.1:#{@relay.port}/live" })
      page.wait("document.querySelector('turbo-cable-stream-source')?.hasAttribute('connected')")
    end
  end

  def append(text, to)
    @publisher.publish(to, JSON.generate(%(<turbo-stream action="append" target="#{to}"><template><li>#{text}</li></template></turbo-stream>)))
  end

  def shown(page, list) = page.evaluate("[...document.querySelectorAll('##{list} li')].map((item) => item.innerText)")

  def assert_shown(pages, list, expected)
    pages.each { |page| page.wait("document.querySelectorAll('##{list} li').length >= #{expected.size}", within: 30) }
    pages.each { |page| assert_equal expected, shown(page, list), list }
  end

  # Publishes all the time to these lists while the block runs. Returns the texts.
  def publishing(lists)
    stopping = false
    texts = []
    thread = Thread.new do
      until stopping
        @count = @count.to_i + 1
        texts << @count.to_s
        lists.each { |list| append(@count.to_s, list) }
        sleep 0.01
      end
    end
    yield
    texts
  ensure
    stopping = true
    thread.join
  end

  it "misses and doubles nothing in two windows" do
    own = launch_live
    @relay = Relay.new(own.address)
    @publisher = Firebrick::Hub::Publisher.new(own.path("tmp/firebrick-hub.sock"))
    pages = [window, window]
    texts = publishing(LISTS) do
      sleep 0.2
      assert_reloads(own)
      workers_of(own).each { |pid| Process.kill("KILL", pid) }
      assert wait_until(within: 20) { own.stats["workers"].count { |worker| worker["state"] == "ready" } == 2 }
      assert_upgrades(own)
    end
    LISTS.each { |list| assert_shown(pages, list, texts) }
    texts += publishing(%w[events]) do
      @relay.cut(down: true)
      sleep DOWN
      @relay.up
    end
    assert_shown(pages, "events", texts)
    pages.each { |page| page.wait("document.querySelector('turbo-cable-stream-source').hasAttribute('connected')", within: 30) }
    append("again", "cable")
    pages.each { |page| page.wait("document.querySelector('#cable li:last-child').innerText == 'again'") }
  end

  it "runs the example with a chat" do
    folder = File.join(Server::ROOT, "examples/turbo-chat")
    files = %w[config.ru chat.html].to_h { |name| [name, File.read(File.join(folder, name))] }
    turbo = "node_modules/@hotwired/turbo/dist/turbo.es2017-esm.js"
    files[turbo] = File.read(File.join(Server::ROOT, "test/npm", turbo))
    own = start(files: files, settings: File.read(File.join(folder, "firebrick.toml")), workers: 2, leaves: %w[tmp messages.txt], env: { "FIREBRICK_HUB_SECRET" => SECRET })
    pages = Array.new(2) { open_page }
    pages.each { |page| page.send(:command, "Page.navigate", { url: own.url("/") }) }
    wait_until("both to listen") { own.stats.dig("hub", "event_listeners") == 2 }
    say = lambda do |page, text|
      page.evaluate("(document.querySelector('input').value = #{text.to_json}, document.querySelector('form').requestSubmit(), 1)")
      page.wait("document.querySelector('input').value == ''")
    end
    say.call(pages.first, "<b>one</b>")
    assert_equal 0, own.command_line("reload", own.dir).last
    say.call(pages.last, "two")
    shown = "[...document.querySelectorAll('#messages li')].map((item) => item.textContent).join()"
    [*pages, open_page.tap { |page| page.send(:command, "Page.navigate", { url: own.url("/") }) }].each { |page| page.wait("#{shown} == '<b>one</b>,two'") }
    form = { "Content-Type" => "application/x-www-form-urlencoded" }
    assert_status 422, post("/messages", "text=+", to: own, headers: form)
    assert_status 200, post("/messages", "text=%C3%BC%FF", to: own, headers: form)
    assert_includes get("/", to: own).body.b, "ü\u{fffd}</li>".b
  end
end
