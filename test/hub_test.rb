# frozen_string_literal: true

# Live pages: the front holds the WebSockets of a Rails app's Action Cable.

require "json"
require "open3"
require "support/cable_client"
require "support/hub_app"
require "support/tls_case"
$LOAD_PATH.push(File.expand_path("../worker/lib", __dir__))
require "firebrick/hub/listener"
require "firebrick/hub/publisher"
require "logger"
require "stringio"
require "timeout"

class HubTest < TlsCase
  parallel!(slow: true)

  include HubApp

  ROOM = { channel: "LiveChannel", room: "1" }.freeze

  def client(own, **options) = closed_at_end(CableClient.new(own, **options))

  # A client that is subscribed to the room.
  def listener(own, channel = ROOM, **options)
    client(own, **options).subscribed(channel)
  end

  FORM = { "Content-Type" => "application/x-www-form-urlencoded", "Host" => "127.0.0.1" }.freeze

  def publish(own, text, stream: "room:1")
    assert_status 204, post("/hub/publish", "stream=#{stream}&text=#{text}", to: own, headers: FORM)
  end

  WHISPERS = { channel: "WhisperChannel", room: "1" }.freeze

  # Clients of a channel whisper in a room, and then about a record.
  def assert_whispers(own)
    ann, bob = Array.new(2) { listener(own, WHISPERS) }
    room = listener(own)
    ann.command("whisper", WHISPERS, data: { typing: 1 })
    bob.wait_for(message: { typing: 1 })
    [ann, bob].each { |one| one.perform(WHISPERS, "enter").then { one.wait_for(message: { entered: true }) } }
    bob.command("whisper", WHISPERS, data: { typing: 2 })
    ann.wait_for(message: { typing: 2 })
    publish(own, "whispered")
    room.wait_for(message: { said: "whispered" })
    refute(room.received.any? { |message| message.is_a?(Hash) && message["typing"] })
  end

  it "runs the app's channels, wherever their calls go" do
    own = hub
    assert_whispers(own)
    one = listener(own)
    assert_equal "hello ann", one.wait_for(message: { welcome: "hello ann" }).dig("message", "welcome")
    counts = Array.new(6) do |i|
      one.perform(ROOM, "count")
      one.wait_for(message: { count: i + 1 })["message"].tap { |count| Process.kill("KILL", count["pid"]) if i == 2 }
    end
    assert_operator counts.map { |count| count["pid"] }.uniq.size, :>, 1, "several workers have served the client"
    assert_equal 1, counts.map { |count| count["first"] }.uniq.size, "variables travel"
    other = listener(own, path: "/cable?user=bob")
    other.perform(ROOM, "say", text: "hi")
    [one, other].each { |each| each.wait_for(identifier: JSON.generate(ROOM), message: { "said" => "hi" }) }
    other.perform(ROOM, "say_to_others", text: "of bob")
    one.wait_for(message: { said: "of bob" })
    other.perform(ROOM, "move", room: "2")
    # The calls of a client are in order; those of others may overtake them.
    other.perform(ROOM, "count")
    other.wait_for(message: { count: 1 })
    publish(own, "two", stream: "room:2")
    publish(own, "one")
    other.wait_for(message: { said: "two" })
    one.wait_for(message: { said: "one" })
    refute_includes other.received, { "said" => "one" }
    refute_includes other.received, { "said" => "of bob" }
    other.perform(ROOM, "stop")
    other.perform(ROOM, "count")
    other.wait_for(message: { count: 2 })
    publish(own, "later", stream: "room:2")
    other.listen(0.3)
    refute_includes other.received, { "said" => "later" }
  end

  { "fibers" => { fibers: 10, threads: "1:1" }, "plain Ruby" => { env: { "FIREBRICK_PURE" => "1" } } }.each do |seats, options|
    it "calls workers with #{seats}" do
      skip "fibers are CRuby's" if seats == "fibers" && !Server.cruby?
      own = hub(**options)
      clients = Array.new(5) { |i| listener(own, path: "/cable?user=#{i}") }
      clients.each { |one| one.perform(ROOM, "say", text: "from one") }
      clients.each { |one| one.wait { one.received.count { |message| message["said"] == "from one" } == 5 } }
      clients.first.perform(ROOM, "count")
      clients.first.wait_for(message: { count: 1, user: "0" })
      assert_whispers(own)
    end
  end

  BLOCK = { channel: "BlockChannel", room: "1" }.freeze

  # Returns the messages of the block of a client's channel.
  def heard(one) = one.received.filter_map { |message| message["heard"] if message.is_a?(Hash) }

  { "threads" => {}, "fibers" => { fibers: 10, threads: "1:1" }, "plain Ruby" => { env: { "FIREBRICK_PURE" => "1" } },
    "HTTP/2" => { version: "HTTP/2" } }.each do |seats, options|
    it "lets the app hold WebSockets when a channel streams with a block (#{seats})" do
      skip "fibers are CRuby's" if seats == "fibers" && !Server.cruby?
      version = options.fetch(:version, "HTTP/1.1")
      secure = version == "HTTP/2" ? { binds: WebSocket::BINDS, extra: pair("own", "localhost", "127.0.0.1") } : {}
      own = hub(**options.except(:version), **secure, threads: options.fetch(:threads, "3:3"))
      stays = listener(own, version: version)
      sent_away = client(own, version: version)
      sent_away.wait_for(type: "welcome")
      sent_away.subscribe(BLOCK)
      sent_away.wait_for(type: "disconnect", reconnect: true)
      assert_equal 1012, sent_away.wait_for_close
      assert_logged(%r{hub: BlockChannel streams from room:1 with a block, .* new WebSockets of /cable go to the app itself}, on: own)
      clients = %w[ann bob].map { |user| listener(own, BLOCK, path: "/cable?user=#{user}", version: version) }
      plain = listener(own, version: version)
      plain.subscribe(WHISPERS)
      plain.wait_for(type: "confirm_subscription", identifier: JSON.generate(WHISPERS))
      20.times { |i| publish(own, "m#{i}") }
      expected = Array.new(20) { |i| "M#{i}" }
      clients.each { |one| one.wait { heard(one).size == 20 } }
      # Action Cable passes messages to a pool of threads.
      clients.each { |one| assert_equal expected.sort, heard(one).sort }
      stays.wait_for(message: { said: "m19" })
      20.times { |i| plain.wait_for(message: { said: "m#{i}" }) }
      assert_equal(expected, stays.received.filter_map { |message| message["said"]&.upcase })
      wait_until("only the client that stays") { own.stats["hub"].values_at("handed_back", "clients") == [1, 1] }
      assert_match(/^sockets +served by the app itself/, own.command_line("hub", "--dir", own.dir).first)
      clients.first.command("unsubscribe", BLOCK)
      # Action Cable does not answer.
      clients.first.listen(1)
      publish(own, "later")
      clients.last.wait { heard(clients.last).last == "LATER" }
      clients.first.listen(0.3)
      refute_includes heard(clients.first), "LATER"
      assert_equal 0, own.command_line("reload", own.dir).last
      again = listener(own, version: version)
      publish(own, "new")
      [stays, again].each { |one| one.wait_for(message: { said: "new" }) }
      assert_equal [0, 2], own.stats["hub"].values_at("handed_back", "clients")
    end
  end

  def pop(queue) = Timeout.timeout(20) { queue.pop }

  it "passes the messages of streams on to processes that listen, over an upgrade" do
    own = hub(upgradable: true, workers: 1)
    got = Queue.new
    ready = Queue.new
    log = StringIO.new
    socket = own.path("tmp/firebrick-hub.sock")
    processes = Firebrick::Hub::Listener.new(socket, Logger.new(log)) { |stream, message| got << [stream, message] }
    names = Array.new(300) { |i| "room:#{i}" }
    names.each { |name| processes.add(name) { ready << name } }
    assert_equal names.sort, Array.new(300) { pop(ready) }.sort
    processes.add("room:1") { ready << "at once" }
    assert_equal "at once", pop(ready)
    publisher = Firebrick::Hub::Publisher.new(socket)
    count = 0
    publish = lambda do |times|
      times.times { publisher.publish("room:#{(count += 1) % 300}", count.to_s) }
    end
    publish.call(700)
    publishing = Thread.new { publish.call(300) while count < 4_000 }
    assert_upgrades(own)
    publishing.join
    publisher.publish("room:7", "\"ä\"")
    all = Array.new(count + 1) { pop(got) }
    assert_equal ["room:7", "\"ä\""], all.pop
    assert_equal (1..count).to_a, all.map { |_, message| Integer(message) }.sort, "each once"
    all.group_by(&:first).each_value do |part|
      numbers = part.map { |_, message| Integer(message) }
      assert_equal numbers.sort, numbers
    end
    processes.remove("room:7")
    processes.add("room:8") { ready << "eight" }
    pop(ready)
    publisher.publish("room:7", "0")
    publisher.publish("room:8", "8")
    assert_equal ["room:8", "8"], pop(got)
    assert_empty log.string
    publisher.publish("room:7", "1")
    processes.close
    publisher.close
  end

  it "tells a process what is lost, and cuts one off that does not read" do
    own = hub(workers: 1, settings: { hub: { history_messages: 2 } })
    path = own.path("tmp/firebrick-hub.sock")
    publisher = Firebrick::Hub::Publisher.new(path)
    epoch, = Array.new(4) { |i| publisher.publish("room", i.to_s) }.last
    ask = lambda do |socket, text, word = "LISTEN"|
      socket.write("#{word} #{text.bytesize}\n#{text}")
      socket.gets
    end
    raw = UNIXSocket.new(path)
    assert_equal "OK #{epoch} 4 LOST\n", ask.call(raw, %({"stream":"room","epoch":"#{epoch}","offset":1}))
    assert_equal "OK #{epoch} 2\n", ask.call(raw, %({"stream":"room","epoch":"#{epoch}","offset":2}))
    assert_equal ["MESSAGE 4 1 #{epoch} 3\n", "room2MESSAGE 4 1 #{epoch} 4\n", "room3"], [raw.gets, raw.gets, raw.read(5)]
    assert_equal "OK #{epoch} 4 LOST\n", ask.call(raw, '{"stream":"room","epoch":"another","offset":4}')
    assert_equal "ERROR LISTEN: expected an object with the name of a stream: missing field `stream` at line 1 column 2\n", ask.call(raw, "{}")
    assert_equal "OK\n", ask.call(raw, "room", "UNLISTEN")
    assert_equal "OK #{epoch} 4\n", ask.call(raw, '{"stream":"room"}')
    large = JSON.generate("x" * 1_000_000)
    24.times { publisher.publish("room", large) }
    read = raw.read
    assert_operator read.bytesize, :<, 20_000_000, "it was cut off"
    wait_until("its end") { own.control("/hub")["streams"].find { |stream| stream["name"] == "room" }["listeners"].zero? }
    [raw, publisher].each(&:close)
  end

  CLOCK = { channel: "ClockChannel", room: "1" }.freeze

  # The numbers of the runs of a timer that a client has seen.
  def ticks(one) = one.received.filter_map { |message| message["ticks"] if message.is_a?(Hash) }

  { "threads" => {}, "fibers" => { fibers: 10, threads: "1:1" }, "plain Ruby" => { env: { "FIREBRICK_PURE" => "1" } } }.each do |seats, options|
    it "runs the timers of channels, in workers with #{seats}" do
      own = hub(**options)
      one = listener(own, CLOCK)
      one.wait_for(message: { block: "1", user: "ann" })
      one.wait { ticks(one).size >= 5 }
      assert_equal (1..ticks(one).size).to_a, ticks(one), "its variables travel"
      publish(own, "x", stream: "clock")
      one.wait_for(message: { said: "x" })
      one.perform(CLOCK, "set", ticks: 999)
      wait_until("an error of the timer") { own.stats.dig("hub", "failed_calls") >= 2 }
      one.perform(CLOCK, "set", ticks: 100)
      one.wait { ticks(one).last > 101 }
      one.command("unsubscribe", CLOCK)
      one.listen(0.5)
      seen = ticks(one).size
      one.listen(1)
      assert_equal seen, ticks(one).size, "the subscription has ended"
      assert_nil one.closed
    end
  end

  it "lets one run of a timer wait, follows new code, and goes on in a new program" do
    own = hub(upgradable: true, workers: 1, threads: "3:3")
    slow = listener(own, CLOCK.merge(room: "slow"))
    one = listener(own, CLOCK)
    slow.wait { ticks(slow).size >= 2 }
    one.wait { ticks(one).size >= 10 }
    assert_operator ticks(slow).size, :<=, 4, "its runs do not heap up"
    seen = ticks(one).last
    own.follow(new_pid(assert_upgrades(own, follow: false)))
    one.wait { ticks(one).last > seen + 2 }
    assert_equal (1..ticks(one).last).to_a, ticks(one)
    file = own.path("app/channels/clock_channel.rb")
    File.write(file, File.read(file).sub("every: 0.2", "every: 0.05").sub(/^  periodically\(every: 0.3.*\n/, ""))
    assert_equal 0, own.command_line("reload", own.dir).last
    one.listen(1)
    blocks = one.received.count { |message| message.is_a?(Hash) && message["block"] }
    seen = ticks(one).size
    one.listen(2)
    assert_operator ticks(one).size - seen, :>, 12, "the new interval"
    assert_equal(blocks, one.received.count { |message| message.is_a?(Hash) && message["block"] })
    one.close
    slow.close
    wait_until("the clients to be gone") { own.stats.dig("hub", "clients").zero? }
    sleep 1.5
    calls = own.stats.dig("hub", "calls")
    sleep 1
    assert_equal calls, own.stats.dig("hub", "calls"), "their timers have ended"
  end

  it "rejects, ends, and tells the app of ends" do
    own = hub
    refused = client(own, path: "/cable")
    assert_equal "unauthorized", refused.wait_for(type: "disconnect", reconnect: false)["reason"]
    refused.wait_for_close
    watcher = listener(own, { channel: "EndsChannel" }, path: "/cable?user=eve")
    one = client(own)
    one.wait_for(type: "welcome")
    one.subscribe({ channel: "LiveChannel", room: "secret" })
    one.wait_for(type: "reject_subscription", identifier: JSON.generate(channel: "LiveChannel", room: "secret"))
    one.subscribe({ channel: "LiveChannel", room: "broken" })
    one.subscribe({ channel: "NoChannel" })
    one.subscribe(ROOM)
    one.wait_for(type: "confirm_subscription")
    one.perform(ROOM, "fail")
    one.perform(ROOM, "no_such_action")
    one.perform(ROOM, "count")
    one.wait_for(message: { count: 1 })
    one.command("unsubscribe", ROOM)
    watcher.wait_for(message: { unsubscribed: "1", count: 1 })
    publish(own, "nobody")
    one.subscribe(ROOM)
    one.wait { one.messages.count { |message| message["type"] == "confirm_subscription" } == 2 }
    refute_includes one.received, { "said" => "nobody" }
    one.close
    watcher.wait_for(message: { left: "ann" })
    assert_equal(2, watcher.received.count { |message| message["unsubscribed"] == "1" })
    left = listener(own)
    left.perform(ROOM, "leave")
    left.wait_for(type: "disconnect", reason: "enough", reconnect: false)
    assert_equal 1000, left.wait_for_close
    ended = listener(own)
    assert_status 204, post("/hub/disconnect", "user=ann", to: own, headers: FORM)
    ended.wait_for(type: "disconnect", reason: "remote")
    ended.wait_for_close
  end

  it "looks records up again, and survives a worker that dies in an action" do
    own = hub
    assert_status 204, post("/hub/publish_entry", "text=zed", to: own, headers: FORM)
    one = listener(own, path: "/cable?user=zed")
    assert_status 204, post("/hub/publish_entry", "text=zed", to: own, headers: FORM)
    one.wait { one.received.any? { |message| message["about"] } }
    one.perform(ROOM, "stall")
    file = own.path("tmp/stalling")
    wait_until("the action to stall") { File.size?(file) }
    Process.kill("KILL", Integer(File.read(file)))
    one.perform(ROOM, "count")
    one.wait_for(message: { count: 1, entry: "zed" })
    assert_nil one.closed
    wait_until("the lost action to be logged") { own.stderr.include?("hub: perform: the app responds with status 502") }
    assert_equal 1, own.stats.dig("hub", "failed_calls")
  end

  it "shows channels the handshake of the client" do
    own = hub
    response = post("/hub/sign_in", "user=carol", to: own, headers: FORM)
    cookies = response.headers.to_a.select { |name, _| name.casecmp?("set-cookie") }.map { |_, value| value[/\A[^;]+/] }
    one = listener(own, path: "/cable", fields: { "Cookie" => cookies.join("; "), "User-Agent" => "a test", "Host" => "127.0.0.1" })
    one.perform(ROOM, "show")
    seen = one.wait { one.received.find { |message| message.key?("cookie") } }
    assert_equal({ "cookie" => "crumbs", "agent" => "a test", "method" => "GET", "session" => "from the session" }, seen)
    assert_equal "hello carol", one.received.first["welcome"]
    elsewhere = client(own, fields: { "Origin" => "http://elsewhere.test" })
    assert_equal 404, elsewhere.socket.status
  end

  it "keeps sockets open over reloads and killed workers, without losing or doubling a message" do
    own = hub
    clients = Array.new(4) { |i| listener(own, path: "/cable?user=u#{i}", protocol: i.odd? ? CableClient::EXTENDED : CableClient::BASIC) }
    texts = Queue.new
    writer = Thread.new do
      300.times do |i|
        post("/hub/publish", "stream=room:1&text=m#{i}", to: own, headers: FORM)
          .then { |response| texts << "m#{i}" if response.status == 204 }
        sleep 0.02
      rescue Minitest::Assertion, SystemCallError, IOError
        next
      end
    end
    out, err, code = own.command_line("reload", own.dir)
    assert_equal 0, code, "#{out}#{err}"
    Process.kill("KILL", own.stats["workers"].find { |worker| worker["state"] == "ready" }["pid"])
    writer.join
    sent = Array.new(texts.size) { texts.pop }
    assert_operator sent.size, :>, 250
    clients.each do |one|
      one.wait { (sent - one.received.map { |message| message["said"] }).empty? }
      said = one.received.map { |message| message["said"] }.compact
      assert_equal said.uniq, said, "no message twice"
      assert_equal said.sort_by { |text| text[1..].to_i }, said, "in order"
      one.perform(ROOM, "count")
      one.wait_for(message: { count: 1 })
      assert_nil one.closed
    end
    offsets = clients[1].messages.map { |message| message["offset"] }.compact
    assert_equal (offsets.first..offsets.last).to_a, offsets
  end

  it "takes messages from any process of the app" do
    own = hub
    one = listener(own)
    environment = RailsApp::ENVIRONMENT.merge("RUBYLIB" => File.join(Server::ROOT, "worker/lib"), "RAILS_ENV" => "production", "RACK_ENV" => "production")
    script = 'ActionCable.server.broadcast("room:1", { said: "from a task" })'
    out, status = Open3.capture2e(environment, "ruby", "bin/rails", "runner", script, chdir: own.dir)
    assert status.success?, out
    one.wait_for(message: { said: "from a task" })
    socket = UNIXSocket.new(File.join(own.dir, "tmp/firebrick-hub.sock"))
    socket.write("PUBLISH 6 2\nroom:1{}PUBLISH 6 1\nroom:1{")
    assert_match(/\AOK \h{12} \d+\n\z/, socket.gets)
    assert_match(/\AERROR the message for "room:1" is not JSON/, socket.gets)
    socket.write("HELLO\n")
    assert_match(/\AERROR expected PUBLISH/, socket.gets)
    assert_nil socket.gets
  end

  it "checks signed streams of Turbo without the app" do
    own = hub(settings: { hub: { secret: SECRET } })
    signed = HubApp.signed("messages")
    channel = { channel: "Turbo::StreamsChannel", signed_stream_name: signed }
    one = listener(own, channel)
    publish(own, "turbo", stream: "messages")
    one.wait_for(identifier: JSON.generate(channel), message: { said: "turbo" })
    forged = channel.merge(signed_stream_name: signed.sub(/.\z/) { |digit| digit == "0" ? "1" : "0" })
    one.subscribe(forged)
    one.wait_for(type: "reject_subscription", identifier: JSON.generate(forged))
  end

  it "sends pings without the app, and shows its figures" do
    own = hub
    one = listener(own)
    before = own.stats["hub"]
    one.wait { one.pings.size >= 2 }
    assert_in_delta 3, one.pings[1]["message"] - one.pings[0]["message"], 1
    publish(own, "x")
    one.wait_for(message: { said: "x" })
    figures = own.stats["hub"]
    assert_equal before["calls"], figures["calls"]
    assert_equal [1, 1, 1], figures.values_at("clients", "subscriptions", "published")
    out, err, code = own.command_line("hub", own.dir)
    assert_equal 0, code, err
    assert_match(/clients +1 of 1 since the start; 1 subscriptions/, out)
    assert_match(/^room:1 +1 +0 +1 +1 /, out)
    assert_equal 1, JSON.parse(own.command_line("hub", own.dir, "--json").first).dig("hub", "clients")
  end
end
