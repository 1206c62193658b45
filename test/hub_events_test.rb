# frozen_string_literal: true

# Live pages without WebSockets: Server-Sent Events and long polling, of an app without Action Cable and of Rails.

require "cgi"
require "json"
require "socket"
require "support/browser"
require "support/event_client"
require "support/quic_go"
require "support/rails_app"
require "support/redis_server"
require "support/relay"
require "support/tls_case"
require "support/upgrading"
require "support/web_socket"
require "uri"

class HubEventsTest < TlsCase
  parallel!

  include RedisServer
  include Upgrading

  SECRET = "0123456789abcdef" * 4
  APP = <<~'RUBY'
    require "json"

    run(lambda do |env|
      query = URI.decode_www_form(env["QUERY_STRING"]).to_h
      text = case env["PATH_INFO"]
             when "/publish" then JSON.generate(Firebrick::Hub.publish(query["stream"], query.key?("json") ? JSON.parse(query["json"]) : query["text"]))
             when "/events" then Firebrick::Hub.events_path(*query["streams"].split(","))
             when "/big" then Firebrick::Hub.publish("room", "x" * Integer(query["size"])).inspect
             when "/page" then <<~HTML
               <!doctype html><title>Events</title><script>
               const seen = JSON.parse(sessionStorage.getItem("seen") || "[]"), resets = [];
               let opened = 0;
               function listen() {
                 const source = new EventSource(#{Firebrick::Hub.events_path("room").to_json});
                 source.onopen = () => opened++;
                 source.onmessage = (event) => { seen.push(event.data); sessionStorage.setItem("seen", JSON.stringify(seen)); };
                 source.addEventListener("reset", (event) => resets.push(event.lastEventId));
               }
               </script>
             HTML
             else "the app has #{env["PATH_INFO"]}"
             end
      [200, { "content-type" => "text/html" }, [text]]
    end)
  RUBY

  # upgradable:: a server that a new program can replace
  def hub(settings: {}, env: {}, upgradable: false, **options)
    settings = { hub: { path: "/cable" }, reload: { watch: "0s", keep: "0s" } }.merge(settings) { |_, one, other| one.merge(other) }
    options = { app: APP, settings: settings, env: { "FIREBRICK_HUB_SECRET" => SECRET }.merge(env), workers: 2, leaves: %w[tmp], **options }
    upgradable ? launch(**options) : start(**options)
  end

  # The path of events, as the app gives it to a page.
  def address(own, streams = "room")
    get("/events?streams=#{streams}", to: own).body
  end

  # The same without a position: from now on.
  def fresh(own, streams = "room") = address(own, streams).sub(/&last_event_id=[^&]*/, "")

  def listener(own, path = fresh(own), **options)
    closed_at_end(EventClient.new(own, path, **options)).tap do |one|
      assert_equal 200, one.status
      one.wait { one.last_id }
    end
  end

  def publish(own, text, stream: "room")
    JSON.parse(get("/publish?#{URI.encode_www_form(stream: stream, text: text)}", to: own).body)
  end

  def poll(own, path, fields = {}) = get(path, to: own, headers: { "Accept" => "application/json" }.merge(fields))

  %w[HTTP/1.1 HTTP/2].each do |version|
    it "sends events over #{version}" do
      own = hub(binds: ["tcp://127.0.0.1:0?h2c=true"])
      one = listener(own, version: version)
      assert_equal ["text/event-stream", "no-store"], one.fields.values_at("content-type", "cache-control")
      assert_includes 1_000..2_000, one.retry
      publish(own, "<p>\none</p>")
      first = one.wait_for("<p>\none</p>")
      get("/publish?stream=room&json=#{CGI.escape('{"said":"two"}')}", to: own)
      one.wait_for('{"said":"two"}')
      publish(own, "elsewhere", stream: "other")
      publish(own, "")
      assert_equal "message", one.wait_for("").type
      refute_includes one.data, "elsewhere"
      assert_equal [1, 1], own.stats["hub"].values_at("event_listeners", "subscriptions")
      again = listener(own, version: version, fields: { "Last-Event-ID" => first.id })
      again.wait_for("")
      assert_equal ['{"said":"two"}', ""], again.data
      [one, again].each(&:close)
      wait_until("the listeners to be gone") { own.stats["hub"].values_at("event_listeners", "subscriptions") == [0, 0] }
    end
  end

  { "fibers" => { fibers: 10, threads: "1:1" }, "plain Ruby" => { env: { "FIREBRICK_PURE" => "1" } } }.each do |seats, options|
    it "takes messages and positions from workers with #{seats}" do
      skip "fibers are CRuby's" if seats == "fibers" && !Server.cruby?
      own = hub(**options)
      path = address(own)
      texts = Array.new(20) { |i| "m#{i}" }
      texts.map { |text| Thread.new { publish(own, text) } }.each(&:join)
      one = listener(own, path)
      one.wait { one.events.size == 20 }
      assert_equal texts.sort, one.data.sort
    end
  end

  it "sends events over HTTP/3" do
    skip "needs Go" unless QuicGo.client
    own = hub(binds: WebSocket::BINDS, files: pair("own", "localhost", "127.0.0.1"))
    path = address(own)
    publish(own, "three")
    asked = Thread.new { QuicGo.ask(Struct.new(:port).new(own.listeners.last[/\d+\z/]), path) }
    wait_until("the listener") { own.stats.dig("hub", "event_listeners") == 1 }
    own.signal("TERM")
    answer = asked.value.first
    assert_equal [200, "HTTP/3.0", nil], answer.values_at("status", "protocol", "error")
    assert_match(/\Aretry: \d+\nid: \h{12}:\h{8}:0\n\nid: \h{12}:\h{8}:1\ndata: three\n\n\z/, answer["text"])
  end

  it "resumes several streams without losing or doubling a message, over reloads and killed workers" do
    own = hub
    path = address(own, "b,a")
    ids = Queue.new
    writer = Thread.new do
      200.times do |i|
        publish(own, "m#{i}", stream: i.odd? ? "a" : "b") && ids << "m#{i}"
      rescue Minitest::Assertion, SystemCallError, IOError
        next
      ensure
        sleep 0.01
      end
    end
    reloading = own.begin_command("reload", own.dir)
    seen = []
    one = nil
    loop do
      one = listener(own, path, fields: one ? { "Last-Event-ID" => one.last_id } : {})
      one.listen(0.3)
      seen.concat(one.events)
      break unless writer.alive?

      one.close
    end
    Process.kill("KILL", own.stats["workers"].find { |worker| worker["state"] == "ready" }["pid"])
    publish(own, "last", stream: "a") while own.stats["workers"].none? { |worker| worker["state"] == "ready" }
    publish(own, "end", stream: "b")
    one.wait { one.data.include?("end") }
    assert_equal 0, reloading.wait.code, reloading.output
    sent = Array.new(ids.size) { ids.pop }
    got = (seen + one.events).uniq(&:object_id).map(&:data).grep(/\Am/)
    assert_equal got.uniq, got, "no message twice"
    assert_empty sent - got
    assert_equal got.sort_by { |text| text[1..].to_i }, got, "in order"
    assert_operator sent.size, :>, 150
  end

  it "resumes after an upgrade" do
    own = hub(upgradable: true)
    one = listener(own)
    publish(own, "before")
    one.wait_for("before")
    assert_upgrades(own)
    one.wait_for_end
    publish(own, "meanwhile")
    back = listener(own, fields: { "Last-Event-ID" => one.last_id })
    publish(own, "after")
    back.wait_for("after")
    assert_equal([%w[message meanwhile], %w[message after]], back.events.map { |event| event.to_a.last(2) })
  end

  it "resumes on another server that shares the streams through Redis" do
    with_redis do |url, _|
      own, other = Array.new(2) { hub(settings: { hub: { redis: url } }) }
      one = listener(own)
      publish(other, "before")
      one.wait_for("before")
      one.close
      publish(own, "meanwhile")
      back = listener(other, fields: { "Last-Event-ID" => one.last_id })
      publish(own, "after")
      back.wait_for("after")
      assert_equal %w[meanwhile after], back.data
      answer = JSON.parse(poll(other, fresh(other), "Last-Event-ID" => one.last_id).body)
      assert_equal [false, %w[meanwhile after]], [answer["reset"], answer["messages"].map { |message| message["data"] }]
    end
  end

  it "tells a client whose messages are no longer kept to load its page again" do
    own = hub(settings: { hub: { history_messages: 3 } })
    path = address(own)
    5.times { |i| publish(own, "m#{i}") }
    late = listener(own, path)
    late.wait { late.events.any? }
    assert_equal([["reset", late.last_id]], late.events.map { |event| [event.type, event.id] })
    publish(own, "after")
    late.wait_for("after")
    turbo = listener(own, "#{path}&refresh=1")
    assert_equal "message", turbo.wait_for('<turbo-stream action="refresh"></turbo-stream>').type
    [fresh(own, "a"), "#{fresh(own)}&last_event_id=nonsense"].each do |other|
      one = listener(own, other, fields: { "Last-Event-ID" => late.last_id.sub(":", "f:") })
      assert_equal "reset", one.wait { one.events.first }.type
    end
    figures = own.stats["hub"]
    assert_equal [0, 4], figures.values_at("resumed", "gaps")
    back = listener(own, fresh(own), fields: { "Last-Event-ID" => late.last_id })
    publish(own, "more")
    back.wait_for("more")
    assert_equal 1, own.stats.dig("hub", "resumed")
  end

  it "refuses what it must, and says why" do
    own = hub(settings: { hub: { max_subscriptions: 2, origins: ["https://shop.test"] } })
    path = fresh(own)
    forged = path.sub(/.\z/) { |digit| digit == "0" ? "1" : "0" }
    many = "/cable/events?#{(['stream=a'] * 3).join('&')}"
    [[403, "not signed", forged], [400, "no stream", "/cable/events"], [400, "more than 2 streams", many],
     [400, "stream is not percent-encoded", "/cable/events?stream=%f"]].each do |status, reason, target|
      response = get(target, to: own)
      assert_status status, response
      assert_includes response.body, reason
    end
    connection = connect(own)
    connection.write(request("POST", path, {}, "x"))
    refused = connection.read_response
    assert_equal [405, "GET, HEAD, OPTIONS"], [refused.status, refused["allow"]]
    head = ask(request("HEAD", path, { "Connection" => "close" }), to: own, method: "HEAD")
    assert_equal [200, "text/event-stream"], [head.status, head["content-type"]]
    assert_equal "the app has /cable/events/more", get("/cable/events/more", to: own).body
    elsewhere = get(path, to: own, headers: { "Origin" => "https://elsewhere.test" })
    assert_status 403, elsewhere
    assert_includes elsewhere.body, "https://elsewhere.test is not one of hub.origins"
    shop = { "Origin" => "https://shop.test" }
    allowed = listener(own, path, fields: shop)
    assert_equal ["https://shop.test", "true", "Origin"], allowed.fields.values_at("access-control-allow-origin", "access-control-allow-credentials", "vary")
    asked = ask(request("OPTIONS", path, shop.merge("Access-Control-Request-Method" => "GET")), to: own)
    assert_equal [204, "https://shop.test"], [asked.status, asked["access-control-allow-origin"]]
    assert_includes asked["access-control-allow-headers"], "Last-Event-ID"
    same = listener(own, path, fields: { "Origin" => "http://example.test" })
    assert_nil same.fields["access-control-allow-origin"]
    assert_equal 1, own.stats.dig("hub", "rejected")
    any = hub(settings: { hub: { origins: ["*"] } })
    assert_equal "*", listener(any, fields: shop).fields["access-control-allow-origin"]
    closed = hub(env: { "FIREBRICK_HUB_SECRET" => nil })
    response = get("/cable/events?stream=a", to: closed)
    assert_status 404, response
    assert_includes response.body, "hub.secret is not set"
  end

  it "ends a client that reads too slowly, which loses nothing" do
    own = hub(settings: { hub: { client_queue: "256KiB" } })
    slow = listener(own, receive_buffer: 4096)
    quick = listener(own)
    count = 0
    wait_until("the slow client to be ended", within: 30) do
      get("/big?size=60000", to: own)
      count += 1
      quick.listen(0.02)
      own.stats.dig("hub", "slow") == 1
    end
    slow.wait_for_end
    refute_predicate quick, :ended?
    back = listener(own, fields: { "Last-Event-ID" => slow.last_id })
    if back.wait { back.events.first }.type == "message"
      back.wait { back.events.size + slow.events.size == count }
    else
      assert_equal 1, own.stats.dig("hub", "gaps"), "more than fits into its queue"
    end
  end

  it "sends comments, and ends bodies when the server stops" do
    own = hub
    one = listener(own)
    one.wait(25) { one.comments.any? }
    waiting = Thread.new { poll(own, address(own)) }
    wait_until("the poll to wait") { own.stats.dig("hub", "polls") == 1 }
    out, = own.command_line("hub", own.dir)
    assert_match(/listeners +1 by Server-Sent Events, 1 polls that wait, 0 by Mercure/, out)
    assert_includes own.metrics, 'firebrick_hub_listeners{transport="events"} 1'
    own.signal("TERM")
    one.wait_for_end
    assert_equal [], waiting.value.json["messages"]
    assert_empty one.events
  end

  it "answers polls with the messages and the next position" do
    own = hub(settings: { hub: { poll: "1s", history_messages: 4 } })
    path = fresh(own, "a,b")
    start = poll(own, path)
    assert_equal ["application/json", "no-store"], [start["content-type"], start["cache-control"]]
    assert_equal [[], false], start.json.values_at("messages", "reset")
    position = start.json["position"]
    publish(own, "one", stream: "b")
    publish(own, "two", stream: "a")
    both = get("#{path}&poll&last_event_id=#{position}", to: own).json
    assert_equal [{ "stream" => "b", "offset" => 1, "data" => "one" }, { "stream" => "a", "offset" => 1, "data" => "two" }], both["messages"]
    waiting = Thread.new { poll(own, path, "Last-Event-ID" => both["position"]) }
    wait_until("the poll to wait") { own.stats.dig("hub", "polls") == 1 }
    publish(own, "three", stream: "b")
    three = waiting.value.json
    assert_equal(%w[three], three["messages"].map { |message| message["data"] })
    refute_equal both["position"], three["position"]
    before = now
    empty = poll(own, path, "Last-Event-ID" => three["position"]).json
    assert_in_delta 1, now - before, 0.9
    assert_equal [three["position"], []], empty.values_at("position", "messages")
    4.times { |i| publish(own, "m#{i}", stream: "b") }
    assert_equal true, get("#{path}&poll=1&last_event_id=#{position}", to: own).json["reset"]
    connection = connect(own)
    connection.write(request("GET", "#{path}&poll=1", { "Last-Event-ID" => poll(own, path).json["position"] }))
    wait_until("the poll to wait") { own.stats.dig("hub", "polls") == 1 }
    connection.close
    wait_until("the poll to be given up") { own.stats.dig("hub", "polls").zero? }
    assert_status 403, poll(own, path, "Origin" => "https://elsewhere.test")
  end

  it "lets an EventSource of Chromium resume after reloads and cuts" do
    skip "Chromium is not installed" unless Browser.installed?
    own = hub
    browser = Browser.new
    page = browser.page
    relay = Relay.new(own.address)
    page.goto("http://127.0.0.1:#{relay.port}/page")
    page.evaluate("listen()")
    page.wait("opened == 1")
    publish(own, "one")
    page.wait('seen.includes("one")')
    # The page is loaded again: it begins where its contents end, though it listens only after the next message.
    page.evaluate("delete window.listen; location.reload()")
    page.wait("typeof listen == 'function' && opened == 0")
    publish(own, "two")
    page.evaluate("listen()")
    page.wait('seen.includes("two")')
    relay.cut
    publish(own, "three")
    page.wait('seen.includes("three")')
    assert_operator page.evaluate("opened"), :>=, 2
    publish(own, "four")
    page.wait('seen.includes("four")')
    assert_equal %w[one two three four], page.evaluate("seen")
    assert_empty page.evaluate("resets")
  ensure
    browser&.close
    relay&.close
  end

  it "runs the example with a price ticker" do
    folder = File.join(Server::ROOT, "examples/price-ticker")
    files = Dir.children(folder).to_h { |name| [name, File.read(File.join(folder, name))] }
    own = start(files: files, settings: File.read(File.join(folder, "firebrick.toml")), workers: 1, leaves: %w[tmp prices.json],
                env: { "FIREBRICK_HUB_SECRET" => SECRET, "TICKER_SECONDS" => "0.1" })
    data = JSON.parse(get("/", to: own).body[/const \{ prices, events \} = (.*);$/, 1])
    assert_equal %w[copper gold silver], data["prices"].keys.sort
    one = listener(own, data["events"])
    one.wait { one.events.size >= 3 }
    assert_equal %w[name price], JSON.parse(one.data.first).keys
    assert_match(%r{\A/live/events\?}, data["events"])
    next unless Browser.installed?

    begin
      browser = Browser.new
      page = browser.page
      page.send(:command, "Page.navigate", { url: own.url("/") })
      page.wait("document.getElementById('state')?.textContent == 'live'")
      shown = page.text("#prices")
      page.wait("document.querySelector('#prices').innerText != #{shown.to_json}")
    ensure
      browser&.close
    end
  end

  it "puts the streams of a Rails page into it, from the moment of rendering" do
    rails_only
    files = {
      "config/cable.yml" => "production: { adapter: firebrick }\n",
      "config/initializers/events.rb" => "Rails.application.routes.append { get 'live' => 'live#show' }\n",
      "app/controllers/live_controller.rb" => <<~'RUBY'
        class LiveController < ApplicationController
          def show
            position = Firebrick::Hub.position("room", ["a", :b]) if params[:early]
            ActionCable.server.broadcast("room", "<turbo-stream action=\"append\"></turbo-stream>")
            render inline: '<%= firebrick_stream_source "room", ["a", :b], position: position, id: "s" %>', locals: { position: position }
          end
        end
      RUBY
    }
    settings = { hub: { path: "/cable" }, reload: { watch: "0s", keep: "0s" } }
    own = start(workers: 1, **RailsApp.options(files: files, env: { "FIREBRICK_HUB_SECRET" => SECRET }, settings: settings))
    render = lambda do |path|
      html = get(path, to: own, headers: { "Host" => "127.0.0.1" }).body
      element = html[%r{<turbo-stream-source [^>]+></turbo-stream-source>}]
      assert_includes element, 'id="s"'
      CGI.unescapeHTML(element[/src="([^"]+)"/, 1])
    end
    early = listener(own, render.call("/live?early=1"))
    early.wait_for('<turbo-stream action="append"></turbo-stream>')
    late = listener(own, render.call("/live"))
    late.listen(0.5)
    assert_empty late.events
    early.wait { early.events.size == 2 }
  end
end
