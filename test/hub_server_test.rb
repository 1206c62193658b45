# frozen_string_literal: true

# Live pages: what the server does by itself, whatever the app is: history, limits, upgrades, other servers, the end.

require "json"
require "support/any_cable_app"
require "support/event_client"
require "support/quic_go"
require "support/redis_server"
require "support/tls_case"
require_relative "../worker/lib/firebrick/hub/publisher"

class HubServerTest < TlsCase
  parallel!(slow: true)

  include AnyCableApp
  include RedisServer

  def say(text) = { stream: "room:1", data: JSON.generate(said: text) }

  def publish(own, text) = super(own, { said: text })

  # Ends the connections of a user.
  def disconnect(own, user)
    assert_status 201, broadcast(own, { command: "disconnect", payload: { identifier: JSON.generate(user: user) } })
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

  { "with a secret" => SECRET, "without a secret" => nil }.each do |how, secret|
    it "lets every page listen to public streams, and to no others (#{how})" do
      own = hub(settings: { hub: { public_streams: ["news", "room:*"], secret: secret, pubsub_whispers: true, broadcast_secret: "b" * 32,
                                   rpc_secret: derived("rpc-cable") } })
      publish = ->(text) { assert_status 201, broadcast(own, say(text), token: "b" * 32) }
      channel = { channel: "$pubsub", stream_name: "room:1" }
      one, other = Array.new(2) { listener(own, channel) }
      page = closed_at_end(EventClient.new(own, "/cable/events?stream=news&stream=room%3A1"))
      assert_equal 200, page.status
      publish.call("all")
      one.wait_for(identifier: JSON.generate(channel), message: { said: "all" })
      page.wait_for('{"said":"all"}')
      other.command("whisper", channel, data: { typing: true })
      one.wait_for(message: { typing: true })
      [{ channel: "$pubsub", stream_name: "room" }, { channel: "$pubsub", stream_name: "" }, { channel: "$pubsub", stream_name: "news", signed_stream_name: "x" },
       { channel: "Turbo::StreamsChannel", stream_name: "news" }].each do |refused|
        one.subscribe(refused)
        one.wait_for(type: "reject_subscription", identifier: JSON.generate(refused))
      end
      assert_status 403, get("/cable/events?stream=room", to: own)
      assert_status 403, get("/cable/events?stream=news&stream=other", to: own)
      assert_status 403, get("/cable/events?stream=news&presence=x", to: own)
    end
  end

  it "keeps to its limits" do
    own = hub(settings: { hub: { max_message: "1KiB", max_subscriptions: 2, client_queue: "256KiB" } })
    one = client(own)
    one.wait_for(type: "welcome")
    3.times { |i| one.subscribe({ channel: "RoomChannel", room: i.to_s }) }
    one.wait_for(type: "reject_subscription", identifier: JSON.generate(channel: "RoomChannel", room: "2"))
    one.send_text("x")
    one.perform({ channel: "RoomChannel", room: "0" }, "count")
    one.wait_for(message: { count: 1 })
    one.send_text("x" * 2000)
    assert_equal 1009, one.wait_for_close
    binary = client(own)
    binary.wait_for(type: "welcome")
    binary.socket.write(WebSocket.frame("x", opcode: 2))
    assert_equal 1003, binary.wait_for_close
    slow = listener(own)
    text = "t" * 60_000
    quick = listener(own, user: "quick", protocol: CableClient::EXTENDED)
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
    floods = Array.new(3) { |i| client(own, user: "f#{i}").tap { |flood| flood.wait_for(type: "welcome") } }
    threads = floods.map { |flood| Thread.new { 500.times { |i| flood.subscribe({ channel: "RoomChannel", room: "r#{i}" }) } } }
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

  # Publishes numbered texts from this process until the block has ended, at least so many. Returns them.
  def publish_meanwhile(own, least = 0)
    publisher = Firebrick::Hub::Publisher.new(File.join(own.dir, "tmp/firebrick-hub.sock"))
    stopped = false
    writer = Thread.new do
      (0..).lazy.map { |i| "m#{i}" }.each_with_object([]) do |text, sent|
        publisher.publish("room:1", JSON.generate(said: text))
        sent << text
        break sent if stopped && sent.size >= least

        sleep 0.01
      end
    end
    yield
    stopped = true
    writer.value
  end

  it "passes WebSockets on to a new program, and to the next, without losing or doubling a message" do
    own = hub(upgradable: true)
    clients = Array.new(50) { |i| listener(own, user: "u#{i}", protocol: i.odd? ? CableClient::EXTENDED : CableClient::BASIC) }
    clients[1].perform(ROOM, "count")
    clients[1].wait_for(message: { count: 1 })
    # A frame that has arrived in part.
    frame = WebSocket.frame(JSON.generate(command: "message", identifier: JSON.generate(ROOM), data: JSON.generate(action: "count")))
    clients[0].socket.write(frame[0, 30])
    sent = publish_meanwhile(own, 501) do
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
    disconnect(own, "u3")
    clients[3].wait_for(type: "disconnect", reason: "remote")
    clients[4].close
    wait_until("the app to be told of the end") { own.stats.dig("hub", "clients") <= 49 }
  end

  it "passes WebSockets on whose streams are shared through Redis" do
    with_redis do |url, _|
      own = hub(upgradable: true, settings: { hub: { redis: url } })
      other = hub(settings: { hub: { redis: url } })
      clients = Array.new(10) { |i| listener(own, user: "u#{i}") }
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
      clients.each(&:close)
      wait_until("the app to be told of the ends") { own.stats["hub"].values_at("clients", "calls") == [0, 10] }
    end
  end

  it "tells clients with encryption to connect again in an upgrade" do
    own = hub(binds: WebSocket::BINDS, files: pair("own", "localhost", "127.0.0.1"), upgradable: true)
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
    watcher = listener(own)
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
      disconnect(own, "ann")
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
        wait_until("Redis to be used again") { broadcast(own, say("after")).status == 201 }
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
        publishing = Thread.new { broadcast(own, say("second")).status }
        # Longer than a command may take, shorter than the publisher's patience.
        sleep 1.3
      ensure
        Process.kill("CONT", pid)
      end
      assert_equal 201, publishing.value
      publish(own, "third")
      one.wait_for(message: { said: "third" })
      assert_equal %w[first second third], said(one).map(&:first)
    end
  end

  it "closes clients one after the other when the server ends" do
    own = hub(settings: { hub: { drain: "3s" } })
    clients = Array.new(30) { |i| listener(own, user: "u#{i}") }
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
      own = hub(binds: WebSocket::BINDS, files: pair("own", "localhost", "127.0.0.1"))
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
