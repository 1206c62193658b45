# frozen_string_literal: true

# Whispers: messages from one client of a live page to the others, which never reach the app.

require "json"
require "support/any_cable_app"
require "support/hub_app"
require "support/quic_go"
require "support/redis_server"
require "support/tls_case"

class HubWhisperTest < TlsCase
  parallel!

  include AnyCableApp
  include RedisServer

  DEN = ROOM.merge(room: "den").freeze
  FAR = ROOM.merge(room: "den2").freeze

  def whisper(one, data, channel = DEN) = one.command("whisper", channel, data: data)

  # The whispers that clients have got by now: those before a message that all get.
  def heard(own, *clients, stream: "room:den")
    @ends = (@ends || 0) + 1
    publish(own, { end: @ends }, stream: stream)
    clients.map do |one|
      one.wait_for(message: { end: @ends })
      one.received.filter_map { |message| message["typing"] if message.is_a?(Hash) }
    end
  end

  it "passes whispers on to those that may whisper, without the app, and keeps none" do
    own = hub
    ann, bob, eve = Array.new(3) { listener(own, DEN, protocol: CableClient::EXTENDED) }
    basic = listener(own, DEN)
    overhears = listener(own)
    overhears.perform(ROOM, "overhear", room: "den")
    overhears.perform(ROOM, "count")
    overhears.wait_for(message: { count: 1 })
    calls = own.stats.dig("hub", "calls")
    whisper(ann, { typing: "ann", at: 1.50 })
    [bob, eve, basic].each { |one| one.wait_for(identifier: JSON.generate(DEN), message: { typing: "ann", at: 1.5 }) }
    assert_equal %w[identifier message], bob.messages.last.keys, "a whisper has no place in the stream"
    whisper(basic, { typing: "basic" })
    [ann, bob, eve].each { |one| one.wait_for(message: { typing: "basic" }) }
    assert_equal [calls, 2], own.stats["hub"].values_at("calls", "whispers")
    assert_match(/^messages +0 published, 2 whispers, 6 sent/, own.command_line("hub", own.dir).first)
    assert_equal [%w[basic], %w[ann basic], %w[ann], []], heard(own, ann, bob, basic, overhears)
    position = bob.messages.last.slice("epoch", "offset")
    whisper(ann, "a text")
    bob.wait_for(message: "a text")
    back = listener(own, DEN, protocol: CableClient::EXTENDED)
    back.command("history", DEN, history: { streams: { "room:den" => position } })
    back.wait_for(type: "confirm_history")
    assert_equal [[]], heard(own, back), "a whisper is not kept"
    assert_equal position["offset"] + 1, back.messages.last["offset"]
  end

  it "lets clients whisper over each version of HTTP" do
    own = hub(binds: WebSocket::BINDS, files: pair("own", "localhost", "127.0.0.1"))
    versions = WebSocket::VERSIONS.select { |version| version != "HTTP/3" || QuicGo.client }
    clients = versions.to_h { |version| [version, listener(own, DEN, version: version)] }
    clients.each do |version, one|
      whisper(one, { typing: version })
      (clients.values - [one]).each { |other| other.wait_for(message: { typing: version }) }
    end
    expected = versions.map { |version| versions - [version] }
    assert_equal expected, heard(own, *clients.values)
  end

  it "passes nothing on that the app has not allowed, or that looks like the server's own" do
    own = hub
    ann = listener(own, DEN)
    bob = listener(own, DEN)
    eve = listener(own)
    whisper(eve, { typing: "without leave" }, ROOM)
    whisper(ann, { typing: "unknown" }, FAR)
    session = "0" * 16
    ['{"$presence":{"type":"join","id":"x"}}', %({"$except":"#{session}","message":{"typing":"all"}}), "null"].each do |json|
      ann.send_text(%({"command":"whisper","identifier":#{JSON.generate(JSON.generate(DEN))},"data":#{json}}))
    end
    ann.send_text(JSON.generate(command: "whisper", data: {}))
    wait_until("all to be counted") { own.stats.dig("hub", "violations") == 6 }
    assert_equal [[], []], heard(own, ann, bob)
    assert_equal [[]], heard(own, eve, stream: "room:1")
    assert_equal(0, bob.messages.count { |message| message["type"] == "presence" })
    whisper(ann, { typing: "allowed" })
    bob.wait_for(message: { typing: "allowed" })
  end

  it "follows the streams of the channel, over a reload and an upgrade" do
    own = hub(upgradable: true)
    ann, bob = Array.new(2) { listener(own, DEN) }
    far = listener(own, FAR)
    ann.perform(DEN, "overhear", room: "den2")
    ann.perform(DEN, "whisper_to", room: "den2")
    ann.perform(DEN, "count")
    ann.wait_for(message: { count: 1 })
    whisper(ann, { typing: "ann" })
    far.wait_for(message: { typing: "ann" })
    whisper(bob, { typing: "bob" })
    assert_equal [[], []], heard(own, ann, bob), "no whispers of a stream to which the client may no longer whisper"
    assert_equal 0, own.command_line("reload", own.dir).last
    own.follow(new_pid(assert_upgrades(own, follow: false)))
    whisper(ann, { typing: "later" })
    far.wait_for(message: { typing: "later" })
    whisper(far, { typing: "far" }, FAR)
    ann.wait_for(message: { typing: "far" })
    assert_equal [%w[far], []], heard(own, ann, bob)
    ann.perform(DEN, "move", room: "den2")
    ann.perform(DEN, "count")
    ann.wait_for(message: { count: 2 })
    bob.command("unsubscribe", DEN)
    before = own.stats.dig("hub", "violations")
    [ann, bob].each { |one| whisper(one, { typing: "stopped" }) }
    wait_until("both to be refused") { own.stats.dig("hub", "violations") == before + 2 }
  end

  it "lets clients whisper to signed streams where that is allowed, and never to pages of Turbo" do
    pubsub = { channel: "$pubsub", signed_stream_name: HubApp.signed("room:den") }
    turbo = pubsub.merge(channel: "Turbo::StreamsChannel")
    [true, false].each do |allowed|
      own = hub(settings: { hub: { pubsub_whispers: allowed } })
      ann, bob = Array.new(2) { listener(own, pubsub) }
      page = listener(own, turbo)
      whisper(page, { typing: "page" }, turbo)
      whisper(ann, { typing: "<turbo-stream>" }, pubsub)
      wait_until("the refusals") { own.stats.dig("hub", "violations") == (allowed ? 1 : 2) }
      bob.wait_for(message: { typing: "<turbo-stream>" }) if allowed
      assert_equal [[], allowed ? ["<turbo-stream>"] : [], []], heard(own, ann, bob, page)
    end
  end

  it "passes whispers on to other servers through Redis, and goes on without it" do
    with_redis do |url, pid|
      own, other = Array.new(2) { hub(settings: { hub: { redis: url } }) }
      ann, bob, far = [own, own, other].map { |server| listener(server, DEN) }
      # Again and again, because the other server may not have subscribed yet.
      repeat = lambda do |text|
        wait_until("#{text} to arrive") do
          whisper(ann, { typing: text })
          far.listen(0.1)
          far.received.include?({ "typing" => text })
        end
      end
      repeat.call("first")
      whisper(far, { typing: "far" })
      [ann, bob].each { |one| one.wait_for(message: { typing: "far" }) }
      Process.kill("KILL", pid)
      whisper(ann, { typing: "alone" })
      bob.wait_for(message: { typing: "alone" })
      redis_on(Integer(url[%r{:(\d+)/}, 1])) do
        repeat.call("again")
        refute_includes ann.received, { "typing" => "first" }
        assert_equal(1, bob.received.count { |message| message == { "typing" => "alone" } })
        [ann, bob, far].each { |one| assert_nil one.closed }
      end
    end
  end

  it "holds a client back that whispers in a loop, and loses whispers rather than a client that reads slowly" do
    own = hub(settings: { hub: { client_queue: "256KiB" } })
    ann, bob, slow = Array.new(3) { listener(own, DEN) }
    text = "x" * 60_000
    times = 250
    began = now
    writer = Thread.new { times.times { |i| whisper(ann, { typing: i, text: text }) } }
    bob.wait(60) { bob.received.any? { |message| message["typing"] == times - 1 } }
    writer.join
    assert_operator now - began, :>, times * 0.02 * 0.9, "each whisper takes its time"
    assert_equal((0...times).to_a, bob.received.filter_map { |message| message["typing"] })
    assert_equal 0, own.stats.dig("hub", "slow")
    ends = heard(own, slow).first
    assert_operator ends.size, :<, times, "#{ends.size} whispers fit into the buffers of a client that does not read"
    assert_equal ends.sort, ends
    assert_nil slow.closed
  end
end
