# frozen_string_literal: true

# Live pages of an app that answers AnyCable's RPC over HTTP, and messages in AnyCable's form.

require "json"
require "socket"
require "support/any_cable_app"
require "support/case"
require "support/redis_server"
require_relative "../worker/lib/firebrick/hub/publisher"

class HubRpcTest < Case
  parallel!

  include RedisServer
  include AnyCableApp

  def setup
    firebrick_only
  end

  def calls(own) = File.exist?(own.path("calls")) ? File.readlines(own.path("calls"), chomp: true) : []

  { "threads" => {}, "fibers" => { fibers: 10, threads: "1:1" }, "plain Ruby" => { env: { "FIREBRICK_PURE" => "1" } } }.each do |seats, options|
    it "runs channels by calls in AnyCable's form, in workers with #{seats}" do
      skip "fibers are CRuby's" if seats == "fibers" && !Server.cruby?
      own = hub(**options)
      one = listener(own, fields: { "Cookie" => "a=1", "X-AnyCable-Meta-Sid" => "forged" })
      other = listener(own, user: "bob")
      assert_equal(1, one.messages.count { |message| message["type"] == "welcome" })
      assert_includes calls(own), "connect ann 127.0.0.1 a=1 []"
      counts = Array.new(5) do |i|
        one.perform(ROOM, "count")
        one.wait_for(message: { count: i + 1 })["message"]
      end
      assert_equal %w[1 2 3 4 5], counts.map { |count| count["since"] }, "the state of the connection travels"
      other.perform(ROOM, "count")
      other.wait_for(message: { count: 1, since: "1", user: "bob" })
      one.perform(ROOM, "say", text: "hi")
      [one, other].each { |each| each.wait_for(identifier: JSON.generate(ROOM), message: { said: "hi" }) }
      other.perform(ROOM, "say_to_others", text: "of bob")
      one.wait_for(message: { said: "of bob" })
      other.perform(ROOM, "move", room: "2")
      other.perform(ROOM, "count")
      other.wait_for(message: { count: 2 })
      assert_status 201, broadcast(own, [{ stream: "room:1", data: '{"said":"one"}' }, { stream: "room:2", data: '{"said":"two"}' }])
      one.wait_for(message: { said: "one" })
      other.wait_for(message: { said: "two" })
      refute_includes other.received, { "said" => "one" }
      refute_includes other.received, { "said" => "of bob" }
      one.command("unsubscribe", ROOM)
      wait_until("the app to know") { calls(own).include?("unsubscribe ann 1") }
      other.close
      wait_until("the app to know of the end") { calls(own).include?('disconnect bob 1 2 ["2"]') }
      one.close
      wait_until("the app to know of the other end") { calls(own).include?("disconnect ann 0 5 []") }
    end
  end

  it "keeps clients over killed workers, a reload and an upgrade" do
    own = hub(upgradable: true)
    one = listener(own)
    one.perform(ROOM, "count")
    Process.kill("KILL", one.wait_for(message: { count: 1 })["message"]["pid"])
    one.perform(ROOM, "count")
    one.wait_for(message: { count: 2 })
    assert_equal 0, own.command_line("reload", own.dir).last
    own.follow(new_pid(assert_upgrades(own, follow: false)))
    one.perform(ROOM, "count")
    one.wait_for(message: { count: 3, since: "3", user: "ann" })
    assert_status 201, broadcast(own, { stream: "room:1", data: '{"said":"later"}' })
    one.wait_for(message: { said: "later" })
    assert_status 201, broadcast(own, { command: "disconnect", payload: { identifier: '{"user":"ann"}', reconnect: false } })
    assert_equal 1000, one.wait_for_close
    assert_equal({ "type" => "disconnect", "reason" => "remote", "reconnect" => false }, one.messages.last)
    wait_until("the app to know of the end") { calls(own).include?('disconnect ann 1 3 ["3"]') }
  end

  it "passes refusals and errors of the app on" do
    own = hub
    refused = client(own, user: "nobody")
    assert_equal 1000, refused.wait_for_close
    assert_equal "unauthorized", refused.messages.last["reason"]
    response = get("/cable?user=broken", to: own, headers: { "Connection" => "Upgrade", "Upgrade" => "websocket", "Sec-WebSocket-Version" => "13",
                                                             "Sec-WebSocket-Key" => "dGhlIHNhbXBsZSBub25jZQ==" })
    assert_status 502, response
    refute_includes response.body, "no database"
    assert_logged "hub: the app reports an error: no database", on: own
    one = listener(own)
    [ROOM.merge(room: "secret"), { channel: "OtherChannel" }].each do |channel|
      one.subscribe(channel)
      one.wait_for(type: "reject_subscription", identifier: JSON.generate(channel))
    end
    assert_logged "hub: subscribe: the app reports an error: Channel not found: OtherChannel", on: own
    one.perform(ROOM, "fail")
    assert_logged "an action failed", on: own
    one.perform(ROOM, "count")
    one.wait_for(message: { count: 1 })
    one.perform(ROOM, "quit")
    one.wait_for_close
  end

  it "knows the members that the app lets in" do
    own = hub
    lobby = ROOM.merge(room: "lobby")
    one = listener(own, lobby)
    listener(own, lobby, user: "bob")
    one.wait_for(type: "presence", message: { type: "join", id: "bob", info: { "name" => "bob" } })
    publisher = Firebrick::Hub::Publisher.new(own.path("tmp/firebrick-hub.sock"))
    assert_equal({ "ann" => { "name" => "ann" }, "bob" => { "name" => "bob" } }, publisher.presence("room:lobby"))
    # A member of another stream than the channel's first.
    porch = ROOM.merge(room: "porch")
    one.subscribe(porch)
    one.wait_for(type: "presence", identifier: JSON.generate(porch), message: { type: "join", id: "ann" })
    { "yard" => { "ann" => {} }, "room:porch" => {} }.each { |stream, members| assert_equal members, publisher.presence(stream) }
    one.perform(porch, "leave")
    one.wait_for(type: "presence", identifier: JSON.generate(porch), message: { type: "leave", id: "ann" })
  end

  it "says which setting is wrong" do
    own = hub(env: { "RPC_TOKEN" => "another" })
    handshake = { "Connection" => "Upgrade", "Upgrade" => "websocket", "Sec-WebSocket-Version" => "13", "Sec-WebSocket-Key" => "dGhlIHNhbXBsZSBub25jZQ==" }
    assert_status 502, get("/cable?user=ann", to: own, headers: handshake)
    assert_logged "the app refuses the token: hub.rpc_secret has to be http_rpc_secret", on: own
    assert_includes own.stdout, "hub.rpc is set, but the app has no gem anycable-rails or anycable-core"
    elsewhere = hub(settings: { hub: { rpc: "/elsewhere" } })
    assert_status 502, get("/cable?user=ann", to: elsewhere, headers: handshake)
    assert_logged "the app has no RPC at /elsewhere: set http_rpc: true", on: elsewhere
    { 'rpc = "/_anycable"' => "hub.path is off", %(path = "/cable"\nrpc = "/_anycable") => "set hub.rpc_secret, or hub.secret",
      %(path = "/cable"\nbroadcast = "/_broadcast") => "set hub.broadcast_secret, or hub.secret" }.each do |lines, expected|
      File.write(own.path("firebrick.toml"), "[hub]\n#{lines}\n")
      _, err, code = own.command_line("check")
      refute_equal 0, code
      assert_includes err, expected
    end
  end

  it "lets only bearers of the token publish, and only what it understands" do
    own = hub(settings: { hub: { broadcast_secret: "s" * 32 } })
    one = listener(own)
    message = { stream: "room:1", data: '{"said":"no"}' }
    { [nil, message] => [401, "token"], [derived("broadcast-cable"), message] => [401, "token"], ["s" * 31, message] => [401, "token"],
      ["s" * 32, "{"] => [422, "expected an object"], ["s" * 32, { stream: "room:1" }] => [422, "expected an object"],
      ["s" * 32, [message, { stream: "", data: "1" }]] => [422, "not empty"], ["s" * 32, { command: "drop", payload: { identifier: "1" } }] => [422, "drop"],
      ["s" * 32, { stream: "room:1", data: "x" * ((1 << 20) + 1) }] => [422, "at most"],
      ["s" * 32, "[#{' ' * (8 << 20)}]"] => [413, "at most"] }.each do |(token, json), (status, text)|
      response = broadcast(own, json, token: token)
      assert_status status, response
      assert_includes response.body, text
    end
    response = get("/_broadcast", to: own, headers: { "Authorization" => "Bearer #{'s' * 32}" })
    assert_status 405, response
    assert_equal "POST", response["allow"]
    assert_status 201, broadcast(own, { stream: "room:1", data: "plain text", meta: { exclude_socket: "abc" } }, token: "s" * 32)
    one.wait_for(message: "plain text")
    refute_includes one.received, { "said" => "no" }
  end

  it "lets a message pass by one client, on all servers and after an upgrade" do
    with_redis do |url, _|
      own = hub(settings: { hub: { redis: url } }, upgradable: true)
      other = hub(settings: { hub: { redis: url } })
      sender, = clients = [own, own, other].map { |server| listener(server, protocol: CableClient::EXTENDED) }
      session = sender.messages.find { |message| message["type"] == "welcome" }["sid"]
      sockets = [own, other].map { |server| Firebrick::Hub::Publisher.new(server.path("tmp/firebrick-hub.sock")) }
      messages = lambda do |times|
        sockets.each { |socket| socket.publish("room:1", %({"by":"socket","n":#{times}}), except: session) }
        meta = { exclude_socket: session }
        assert_status 201, broadcast(other, { stream: "room:1", data: %({"by":"http","n":#{times}}), meta: meta })
        sockets.first.publish("room:1", %({"to":"all","n":#{times}}))
        clients.each { |one| one.wait_for(message: { to: "all", n: times }) }
        by = clients.map { |one| one.received.filter_map { |message| message["by"] if message["n"] == times } }
        assert_equal [[], *([%w[socket socket http]] * 2)], by
      end
      messages.call(1)
      assert_upgrades(own)
      messages.call(2)
      assert_raises(Firebrick::Hub::Refused) { sockets.first.publish("room:1", %({"$except":"#{session}"})) }
      sockets.each(&:close)
    end
  end

  it "publishes on the local socket in AnyCable's form, in order and through Redis" do
    with_redis do |url, pid|
      own, other = Array.new(2) { hub(settings: { hub: { redis: url } }) }
      one = listener(other)
      publisher = Firebrick::Hub::Publisher.new(own.path("tmp/firebrick-hub.sock"))
      batch = Array.new(50) { |i| { stream: "room:1", data: JSON.generate(n: i) } }
      assert_equal 50, publisher.broadcast(JSON.generate(batch))
      one.wait_for(message: { n: 49 })
      assert_equal (0..49).to_a, (one.received.map { |message| message["n"] })
      assert_raises(Firebrick::Hub::Refused) { publisher.broadcast("[1]") }
      Process.kill(:STOP, pid)
      error = assert_raises(Firebrick::Hub::Refused) { publisher.broadcast(JSON.generate(batch)) }
      assert_includes error.message, "0 of 50 messages are published"
      assert_status 503, broadcast(own, batch.first)
    ensure
      Process.kill(:CONT, pid) if pid
    end
  end
end
