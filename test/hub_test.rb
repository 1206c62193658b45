# frozen_string_literal: true

# Live pages: the front holds the WebSockets of a Rails app's Action Cable.

require "json"
require "open3"
require "support/cable_client"
require "support/hub_app"
require "support/tls_case"
require "support/redis_server"
$LOAD_PATH.push(File.expand_path("../worker/lib", __dir__))
require "firebrick/hub/listener"
require "firebrick/hub/publisher"
require "logger"
require "stringio"
require "timeout"

class HubTest < TlsCase
  parallel!(slow: true)

  include HubApp
  include RedisServer

  ROOM = { channel: "LiveChannel", room: "1" }.freeze

  def setup
    super
    skip "Rails is not installed (apt-get install ruby-rails ruby-sqlite3)" unless RailsApp.version
    @clients = []
  end

  def teardown
    @clients.each(&:close)
    super
  end

  def client(own, **options)
    CableClient.new(own, **options).tap { |one| @clients << one }
  end

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
    other.perform(ROOM, "move", room: "2")
    # The calls of a client are in order; those of others may overtake them.
    other.perform(ROOM, "count")
    other.wait_for(message: { count: 1 })
    publish(own, "two", stream: "room:2")
    publish(own, "one")
    other.wait_for(message: { said: "two" })
    one.wait_for(message: { said: "one" })
    refute_includes other.received, { "said" => "one" }
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

  it "resumes a client that was away, or says that it cannot" do
    own = hub(settings: { hub: { history_messages: 5 } })
    one = listener(own, protocol: CableClient::EXTENDED)
    publish(own, "a")
    position = one.wait_for(message: { said: "a" })
    assert_equal "room:1", position["stream_id"]
    one.close
    %w[b c].each { |text| publish(own, text) }
    history = { streams: { "room:1" => position.slice("epoch", "offset") } }
    back = client(own, protocol: CableClient::EXTENDED)
    back.wait_for(type: "welcome")
    back.subscribe(ROOM, history: history)
    back.wait_for(type: "confirm_history")
    assert_equal %w[b c], back.received.map { |message| message["said"] }.compact
    publish(own, "d")
    back.wait_for(message: { said: "d" })
    %w[e f g].each { |text| publish(own, text) }
    late = client(own, protocol: CableClient::EXTENDED)
    late.wait_for(type: "welcome")
    late.subscribe(ROOM, history: history)
    late.wait_for(type: "reject_history")
    assert_empty(late.received.map { |message| message["said"] }.compact)
    late.command("history", ROOM, history: { since: Time.now.to_i - 3600 })
    late.wait { late.messages.count { |message| message["type"] == "reject_history" } == 2 }
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

  it "keeps to its limits" do
    own = hub(settings: { hub: { max_message: "1KiB", max_subscriptions: 2, client_queue: "256KiB" } })
    one = client(own)
    one.wait_for(type: "welcome")
    3.times { |i| one.subscribe({ channel: "LiveChannel", room: i.to_s }) }
    one.wait_for(type: "reject_subscription", identifier: JSON.generate(channel: "LiveChannel", room: "2"))
    one.send_text("x")
    one.perform({ channel: "LiveChannel", room: "0" }, "count")
    one.wait_for(message: { count: 1 })
    one.send_text("x" * 2000)
    assert_equal 1009, one.wait_for_close
    binary = client(own)
    binary.wait_for(type: "welcome")
    binary.socket.write(WebSocket.frame("x", opcode: 2))
    assert_equal 1003, binary.wait_for_close
    slow = listener(own)
    text = "t" * 60_000
    quick = listener(own, path: "/cable?user=quick", protocol: CableClient::EXTENDED)
    wait_until("the slow client to be closed", within: 30) do
      publish(own, text)
      quick.listen(0.05)
      own.stats.dig("hub", "slow") == 1
    end
    assert_nil quick.closed
    slow.wait_for_close
    assert_equal 1008, slow.closed
    assert_equal "slow_client", slow.messages.last["reason"]
    plain = get("/cable", to: own)
    assert_status 426, plain
    assert_equal 400, client(own, protocol: "graphql-ws").socket.status
  end

  it "serves others beside clients that flood it, and those that never finish a handshake" do
    own = hub(settings: { hub: { max_subscriptions: 20 } })
    one = listener(own)
    halves = Array.new(200) { TCPSocket.new("127.0.0.1", own.port).tap { |socket| socket.write("GET /cable HTTP/1.1\r\nHost: x\r\nUpgrade: webso") } }
    floods = Array.new(3) { |i| client(own, path: "/cable?user=f#{i}").tap { |flood| flood.wait_for(type: "welcome") } }
    threads = floods.map { |flood| Thread.new { 500.times { |i| flood.subscribe({ channel: "LiveChannel", room: "r#{i}" }) } } }
    publish(own, "beside")
    one.wait_for(message: { said: "beside" })
    one.perform(ROOM, "count")
    one.wait_for(message: { count: 1 })
    floods.each do |flood|
      flood.wait(60) { flood.messages.count { |message| message["type"] == "reject_subscription" } == 480 }
      assert_nil flood.closed
    end
    threads.each(&:join)
    assert_equal 61, own.stats.dig("hub", "subscriptions")
    assert_nil one.closed
  ensure
    halves&.each(&:close)
  end

  # Opens so many connections in a process of its own, which may have more descriptors: handshakes that are not finished, WebSockets that say
  # nothing, and WebSockets whose first frame is not finished.
  HALF_OPEN = <<~'RUBY'
    require "socket"
    port, count = ARGV.map { |word| Integer(word) }
    handshake = "GET /cable?user=half HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n" \
                "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: actioncable-v1-json\r\n\r\n"
    sockets = Array.new(count) do |at|
      TCPSocket.new("127.0.0.1", port).tap { |socket| socket.write(at % 3 == 0 ? handshake[0, 60] : handshake) }
    end
    sockets.each_with_index do |socket, at|
      socket.readpartial(4096) unless at % 3 == 0
      socket.write([0x81, 0x80 | 100, 1, 2, 3, 4, 5].pack("C*")) if at % 3 == 2
    end
    puts "open"
    $stdout.flush
    $stdin.read
  RUBY

  def with_half_open(own, count)
    limit = [Process.getrlimit(:NOFILE).last, 20_000].min
    IO.popen(["ruby", "-e", HALF_OPEN, own.port.to_s, count.to_s, { rlimit_nofile: limit }], "r+") do |half|
      assert_equal "open\n", half.gets
      yield
    end
  end

  it "serves others beside thousands of sockets that are half open, and gives their memory back" do
    count = ENV.key?("TEST_FIGURES") ? 9_999 : 1_500
    own = hub(settings: { limits: { max_connections: 15_000 }, timeouts: { header: "20s" } }, threads: "5:5")
    one = listener(own)
    before = own.stats.dig("memory", "connections_bytes")
    with_half_open(own, count) do
      assert_equal 1 + (count / 3 * 2), own.stats.dig("hub", "clients")
      each = (own.stats.dig("memory", "connections_bytes") - before) / count
      assert_operator each, :<, 8 << 10
      waits = Array.new(10) do |i|
        elapsed do
          publish(own, "beside#{i}")
          one.wait_for(message: { said: "beside#{i}" })
          one.perform(ROOM, "count")
          one.wait_for(message: { count: i + 1 })
        end
      end
      puts "#{name}: #{waits.map { |wait| (wait * 1000).round }} ms, #{each} B each" if ENV["TEST_VERBOSE"]
      # The server gives up handshakes that do not end, and keeps WebSockets that say nothing.
      wait_until("the handshakes to be given up", within: 60) { own.stats.dig("connections", "open") <= 10 + (count / 3 * 2) }
      assert_equal 1 + (count / 3 * 2), own.stats.dig("hub", "clients")
    end
    wait_until("all of them to be gone", within: 60) { own.stats.dig("hub", "clients") == 1 && own.stats.dig("hub", "calls") >= count / 3 * 4 }
    assert_nil one.closed
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

  # Publishes numbered texts from this process until the block has ended. Returns them.
  def publish_meanwhile(own)
    publisher = Firebrick::Hub::Publisher.new(File.join(own.dir, "tmp/firebrick-hub.sock"))
    stopped = false
    writer = Thread.new do
      (0..).lazy.map { |i| "m#{i}" }.each_with_object([]) do |text, sent|
        publisher.publish("room:1", JSON.generate(said: text))
        sent << text
        break sent if stopped

        sleep 0.01
      end
    end
    yield
    stopped = true
    writer.value
  end

  it "passes WebSockets on to a new program, and to the next, without losing or doubling a message" do
    own = hub(upgradable: true)
    clients = Array.new(50) { |i| listener(own, path: "/cable?user=u#{i}", protocol: i.odd? ? CableClient::EXTENDED : CableClient::BASIC) }
    clients[1].perform(ROOM, "count")
    clients[1].wait_for(message: { count: 1 })
    # A frame that has arrived in part.
    frame = WebSocket.frame(JSON.generate(command: "message", identifier: JSON.generate(ROOM), data: JSON.generate(action: "count")))
    clients[0].socket.write(frame[0, 30])
    sent = publish_meanwhile(own) do
      2.times { own.follow(new_pid(assert_upgrades(own, follow: false))) }
    end
    assert_operator sent.size, :>, 500
    clients.each do |one|
      one.wait { said(one).size >= sent.size }
      assert_equal sent, said(one).map(&:first), "all messages, once and in order"
      assert_nil one.closed
    end
    assert_equal 1, said(clients[1]).map { |_, epoch, _| epoch }.uniq.size
    offsets = said(clients[1]).map(&:last)
    assert_equal (offsets.first..offsets.last).to_a, offsets
    clients[0].socket.write(frame[30..])
    clients[0].wait_for(message: { count: 1, user: "u0" })
    clients[1].perform(ROOM, "count")
    clients[1].wait_for(message: { count: 2, user: "u1" })
    clients[2].command("unsubscribe", ROOM)
    clients[2].subscribe(ROOM)
    clients[2].wait { clients[2].messages.count { |message| message["type"] == "confirm_subscription" } == 2 }
    assert_equal 50, own.stats.dig("hub", "clients")
    back = client(own, protocol: CableClient::EXTENDED)
    back.wait_for(type: "welcome")
    back.subscribe(ROOM, history: { streams: { "room:1" => { epoch: said(clients[1]).last[1], offset: offsets[-500] } } })
    back.wait_for(type: "confirm_history")
    # Some of these were published before the last upgrade, and the new program has them from the old one.
    assert_equal sent.last(499), said(back).map(&:first)
    assert_status 204, post("/hub/disconnect", "user=u3", to: own, headers: FORM)
    clients[3].wait_for(type: "disconnect", reason: "remote")
    clients[4].close
    wait_until("the app to be told of the end") { own.stats.dig("hub", "clients") <= 49 }
  end

  it "passes WebSockets on whose streams are shared through Redis" do
    with_redis do |url, _|
      own = hub(upgradable: true, settings: { hub: { redis: url } })
      other = hub(settings: { hub: { redis: url } })
      clients = Array.new(10) { |i| listener(own, path: "/cable?user=u#{i}") }
      beyond = nil
      sent = publish_meanwhile(own) do
        beyond = Thread.new { Array.new(100) { |i| "b#{i}".tap { |text| publish(other, text) && sleep(0.05) } } }
        own.follow(new_pid(assert_upgrades(own, follow: false)))
        beyond.join
      end
      clients.each do |one|
        one.wait { said(one).size >= sent.size + 100 }
        texts = said(one).map(&:first)
        assert_equal sent, texts.grep(/m/), "all messages of the server, once and in order"
        assert_equal beyond.value, texts.grep(/b/), "those of the other server as well"
        assert_nil one.closed
      end
      # The app publishes at their end, which needs Redis.
      clients.each(&:close)
      wait_until("the app to be told of the ends") { own.stats["hub"].values_at("clients", "calls") == [0, 10] }
    end
  end

  it "tells clients with encryption to connect again in an upgrade" do
    own = hub(binds: WebSocket::BINDS, extra: pair("own", "localhost", "127.0.0.1"), upgradable: true)
    one = listener(own, version: "HTTP/2")
    plain = listener(own)
    out = assert_upgrades(own, follow: false)
    one.wait_for(type: "disconnect", reason: "server_restart", reconnect: true)
    assert_equal 1012, one.wait_for_close
    own.follow(new_pid(out))
    publish(own, "after")
    plain.wait_for(message: { said: "after" })
    assert_nil plain.closed
  end

  it "tells clients to connect again when the server ends" do
    own = hub
    watcher = listener(own, { channel: "EndsChannel" }, path: "/cable?user=eve")
    own.signal("TERM")
    watcher.wait_for(type: "disconnect", reason: "server_restart", reconnect: true)
    assert_equal 1012, watcher.wait_for_close
  end

  # The texts of the room's messages, with their positions.
  def said(one) = one.messages.select { |message| message.dig("message", "said") }.map { |message| [message["message"]["said"], message["epoch"], message["offset"]] }

  it "shares streams with other servers through Redis" do
    with_redis do |url, _|
      own, other = Array.new(2) { hub(settings: { hub: { redis: url } }) }
      clients = [own, other].map { |server| listener(server, protocol: CableClient::EXTENDED) }
      20.times { |i| publish(i.even? ? own : other, "m#{i}") }
      here, there = clients.map { |one| one.wait { said(one) if said(one).size >= 20 } }
      assert_equal (0...20).map { |i| "m#{i}" }, here.map(&:first)
      assert_equal here, there, "one order, and the same positions"
      clients[0].close
      publish(own, "m20")
      back = client(other, protocol: CableClient::EXTENDED)
      back.wait_for(type: "welcome")
      back.subscribe(ROOM, history: { streams: { "room:1" => { epoch: here[9][1], offset: here[9][2] } } })
      back.wait_for(type: "confirm_history")
      assert_equal (10..20).map { |i| "m#{i}" }, said(back).map(&:first)
      late = hub(settings: { hub: { redis: url } })
      newest = client(late, protocol: CableClient::EXTENDED)
      newest.wait_for(type: "welcome")
      newest.subscribe(ROOM, history: { streams: { "room:1" => { epoch: here[18][1], offset: here[18][2] } } })
      newest.wait_for(type: "confirm_history")
      assert_equal %w[m19 m20], said(newest).map(&:first), "a server that has started later knows the history"
      assert_status 204, post("/hub/disconnect", "user=ann", to: own, headers: FORM)
      [clients[1], newest].each { |one| one.wait_for(type: "disconnect", reason: "remote") }
    end
  end

  it "publishes nothing without Redis, keeps the WebSockets, and goes on when it is back" do
    with_redis do |url, pid|
      own, other = Array.new(2) { hub(settings: { hub: { redis: url } }) }
      clients = [own, other].map { |server| listener(server, protocol: CableClient::EXTENDED) }
      publish(own, "before")
      clients.each { |one| one.wait_for(message: { said: "before" }) }
      Process.kill("KILL", pid)
      socket = UNIXSocket.new(File.join(own.dir, "tmp/firebrick-hub.sock"))
      socket.write("PUBLISH 6 16\nroom:1{\"said\":\"never\"}")
      assert_match(/\AERROR the message does not reach the other servers: Redis on 127\.0\.0\.1:\d+/, socket.gets)
      wait_until("the failure to be logged") { other.stderr.include?("hub: nothing can be published until Redis on 127.0.0.1") }
      assert_equal [1, 1, 1], own.stats["hub"].values_at("redis_away", "redis_losses", "unpublished")
      assert_match(/^redis        away: nothing can be published; 1 losses of its connection, 1 messages not published$/, own.command_line("hub", own.dir).first)
      redis_on(Integer(url[%r{:(\d+)/}, 1])) do
        wait_until("Redis to be used again") { post("/hub/publish", "stream=room:1&text=after", to: own, headers: FORM).status == 204 }
        publish(other, "later")
        wait_until("all to know") { [own, other].all? { |server| server.stats.dig("hub", "redis_away").zero? } }
        here, there = clients.map { |one| one.wait { said(one) if said(one).map(&:first).include?("later") } }
        assert_equal %w[before after later], here.map(&:first)
        assert_equal here, there
        assert_operator here[1][2], :>, here[0][2], "offsets grow beyond a Redis that has lost its memory"
        refute_equal here[0][1], here[1][1], "in a new epoch"
        clients.each { |one| assert_nil one.closed }
        clients[0].command("history", ROOM, history: { streams: { "room:1" => { epoch: here[0][1], offset: here[0][2] } } })
        clients[0].wait_for(type: "reject_history")
      end
    end
  end

  it "publishes a message once, whose reply from Redis was lost" do
    with_redis do |url, pid|
      own = hub(settings: { hub: { redis: url } })
      one = listener(own)
      publish(own, "first")
      one.wait_for(message: { said: "first" })
      Process.kill("STOP", pid)
      begin
        publishing = Thread.new { post("/hub/publish", "stream=room:1&text=second", to: own, headers: FORM).status }
        # Longer than a command may take, shorter than the publisher's patience.
        sleep 1.3
      ensure
        Process.kill("CONT", pid)
      end
      assert_equal 204, publishing.value
      publish(own, "third")
      one.wait_for(message: { said: "third" })
      assert_equal %w[first second third], said(one).map(&:first)
    end
  end

  it "closes clients one after the other when the server ends" do
    own = hub(settings: { hub: { drain: "3s" } })
    clients = Array.new(30) { |i| listener(own, path: "/cable?user=u#{i}") }
    own.signal("TERM")
    began = now
    times = clients.map do |one|
      Thread.new do
        one.wait_for(type: "disconnect", reason: "server_restart", reconnect: true)
        assert_equal 1012, one.wait_for_close
        now - began
      end
    end
    times = times.map(&:value).sort
    # A machine that is busy makes it longer, not shorter. Each thread of the server spreads its own clients.
    assert_operator times.last - times.first, :>, 1.2, times.inspect
    assert_operator times.count { |time| time - times.first < 0.5 }, :<, 20, times.inspect
  end

  WebSocket::VERSIONS.each do |version|
    it "serves #{version}" do
      skip "needs Go" if version == "HTTP/3" && !QuicGo.client
      own = hub(binds: WebSocket::BINDS, extra: pair("own", "localhost", "127.0.0.1"))
      one = listener(own, version: version)
      one.perform(ROOM, "count")
      one.wait_for(message: { count: 1 })
      publish(own, "over #{version[-1]}")
      one.wait_for(message: { said: "over #{version[-1]}" })
      one.send_text("x" * 65_500)
      begin
        one.send_text("x" * 65_500 * 2)
      rescue Errno::EPIPE
        # The server has closed the stream before the whole message was written.
        nil
      end
      assert_equal 1009, one.wait_for_close
    end
  end
end
