# frozen_string_literal: true

# Presence: the members of streams, in a Rails app's channels, by signed names, and on pages that only listen.

require "json"
require "openssl"
require "support/browser"
require "support/cable_client"
require "support/event_client"
require "support/hub_app"
require "support/quic_go"
require "support/redis_server"
require "support/tls_case"
require "uri"
require_relative "../worker/lib/firebrick/hub/publisher"

class HubPresenceTest < TlsCase
  parallel!

  include HubApp
  include RedisServer

  ROOM = { channel: "LiveChannel", room: "1" }.freeze
  HERE = { channel: "HereChannel", room: "1" }.freeze

  def hub(settings: {}, **options)
    super(settings: { hub: { presence_expiry: "1s" } }.merge(settings) { |_, one, other| one.merge(other) }, **options)
  end

  # A client that is subscribed.
  def client(own, user, channel = ROOM, subscribing: {}, protocol: CableClient::EXTENDED, **options)
    closed_at_end(CableClient.new(own, path: "/cable?user=#{user}", protocol: protocol, **options)).subscribed(channel, **subscribing)
  end

  # The events of members that a client has got, in short.
  def seen(one)
    events = one.messages.select { |message| message["type"] == "presence" && %w[join leave].include?(message["message"]["type"]) }
    events.map { |event| event["message"].values_at("type", "id").join(" ") }
  end

  def offsets(one) = one.messages.filter_map { |message| message["offset"] if message["type"] == "presence" && message["message"]["type"] != "info" }

  def wait_for_events(one, *events)
    one.wait { seen(one).size >= events.size }
    assert_equal events, seen(one)
  end

  # The members that the server names to a client, by id.
  def members(one, channel = ROOM)
    before = one.messages.size
    one.command("presence", channel)
    info = one.wait { one.messages.drop(before).find { |message| message["type"] == "presence" && message["message"]["type"] == "info" } }
    assert_equal info["message"]["total"], info["message"]["records"].size
    info["message"]["records"].to_h { |record| [record["id"], record["info"]] }
  end

  def error(one, number = 1)
    errors = -> { one.messages.select { |message| message["type"] == "presence" && message["message"]["type"] == "error" } }
    one.wait { errors.call.size >= number }
    errors.call[number - 1]["message"]["reason"]
  end

  def sign(json, secret = SECRET)
    data = [json].pack("m0")
    "#{data}--#{OpenSSL::HMAC.hexdigest('SHA256', secret, data)}"
  end

  def token(stream, id, info = {}, **more) = sign(JSON.generate(presence: { stream: stream, id: id, info: info, **more }))

  # The members as processes of the app see them.
  def asked(own, stream)
    socket = UNIXSocket.new(File.join(own.dir, "tmp/firebrick-hub.sock"))
    socket.write("PRESENCE #{stream.bytesize}\n#{stream}")
    word, length = socket.gets.split
    assert_equal "OK", word
    JSON.parse(socket.read(Integer(length)))
  ensure
    socket&.close
  end

  { "threads" => {}, "fibers" => { fibers: 10, threads: "1:1" }, "plain Ruby" => { env: { "FIREBRICK_PURE" => "1" } } }.each do |seats, options|
    it "has one member for two tabs, in workers with #{seats}" do
      skip "fibers are CRuby's" if seats == "fibers" && !Server.cruby?
      own = hub(**options)
      ann = client(own, "ann", HERE)
      wait_for_events(ann, "join ann")
      join = ann.messages.find { |message| message["type"] == "presence" }
      assert_equal({ "type" => "join", "id" => "ann", "info" => { "name" => "ANN" } }, join["message"])
      assert_equal [JSON.generate(HERE), "here:1", 1], join.values_at("identifier", "stream_id", "offset")
      tab = client(own, "ann", HERE)
      bob = client(own, "bob", HERE, protocol: CableClient::BASIC)
      wait_for_events(ann, "join ann", "join bob")
      assert_equal({ "ann" => { "name" => "ANN" }, "bob" => { "name" => "BOB" } }, members(bob, HERE))
      ann.perform(HERE, "ask")
      ann.wait_for(message: { members: { "ann" => { "name" => "ANN" }, "bob" => { "name" => "BOB" } } })
      tab.command("unsubscribe", HERE)
      bob.perform(HERE, "quit")
      wait_for_events(ann, "join ann", "join bob", "leave bob")
      ann.command("leave", HERE, presence: { id: "ann" })
      wait_for_events(bob, "join bob", "leave bob", "leave ann")
      wait_for_events(ann, "join ann", "join bob", "leave bob", "leave ann")
      assert_equal [1, 2, 3, 4], offsets(ann)
      assert_empty members(bob, HERE)
      assert_empty asked(own, "here:1")
    end
  end

  it "keeps a member whose connection breaks for a while, unseen if it comes back" do
    own = hub(settings: { hub: { presence_expiry: "3s" } })
    watcher = client(own, "eve", HERE)
    ann = client(own, "ann", HERE)
    wait_for_events(watcher, "join eve", "join ann")
    ann.close
    back = client(own, "ann", HERE)
    watcher.listen(4)
    assert_equal ["join eve", "join ann"], seen(watcher), "it came back in time"
    began = now
    back.close
    wait_for_events(watcher, "join eve", "join ann", "leave ann")
    assert_operator now - began, :>=, 2.5
    assert_equal [1, 2, 3], offsets(watcher)
    assert_equal 1, own.stats.dig("hub", "members")
    out, = own.command_line("hub", own.dir)
    assert_match(/1 members present/, out)
    assert_match(/^here:1 +1 +1 +3 /, out)
  end

  it "resumes events of members with the others, in order" do
    own = hub
    watcher = client(own, "eve", HERE)
    wait_for_events(watcher, "join eve")
    place = watcher.messages.find { |message| message["offset"] }.slice("epoch", "offset")
    watcher.close
    ann = client(own, "ann", HERE)
    post("/hub/publish", "stream=here:1&text=hi", to: own, headers: { "Content-Type" => "application/x-www-form-urlencoded", "Host" => "127.0.0.1" })
    ann.perform(HERE, "quit")
    wait_for_events(ann, "join ann", "leave ann")
    back = client(own, "zoe", HERE, subscribing: { history: { streams: { "here:1" => place } } })
    back.wait_for(type: "confirm_history")
    missed = back.messages.select { |message| message["offset"] }.take(3).map { |message| message["message"].values_at("type", "id", "said").compact }
    assert_equal [%w[join ann], %w[hi], %w[leave ann]], missed
  end

  it "lets actions join and leave any stream, and survives the death of all workers and a reload" do
    own = hub(settings: { hub: { presence_expiry: "0s" } })
    ann = client(own, "ann")
    bob = client(own, "bob")
    ann.perform(ROOM, "enter")
    # Calls of one client may overtake those of another.
    wait_for_events(bob, "join ann")
    bob.perform(ROOM, "enter", id: 7, info: [1, { "a" => nil }])
    wait_for_events(bob, "join ann", "join 7").then { assert_equal({ "7" => [1, { "a" => nil }], "ann" => { "name" => "ann" } }, members(bob)) }
    own.stats["workers"].each { |worker| Process.kill("KILL", worker["pid"]) }
    ann.perform(ROOM, "enter", stream: "lobby", info: "x")
    wait_until("ann to be in the lobby") { asked(own, "lobby") == { "ann" => "x" } }
    ann.wait_for(type: "presence", message: { type: "join", id: "ann", info: "x" })
    out, err, code = own.command_line("reload", own.dir)
    assert_equal 0, code, "#{out}#{err}"
    assert_equal %w[7 ann], members(bob).keys
    bob.perform(ROOM, "go", id: "other")
    bob.perform(ROOM, "enter", id: "bob")
    # The event of the lobby comes, too.
    wait_for_events(ann, "join ann", "join 7", "join ann", "leave 7", "join bob")
    ann.perform(ROOM, "stop")
    wait_for_events(bob, "join ann", "join 7", "leave 7", "join bob", "leave ann")
    wait_until("ann to be nowhere") { asked(own, "lobby").empty? }
    bob.perform(ROOM, "move", room: "2")
    wait_until("bob to leave the stopped stream") { asked(own, "room:1").empty? }
    assert_nil ann.closed
  end

  it "lets clients join by themselves only with a token, or where claims are allowed" do
    own = hub(settings: { hub: { secret: SECRET } })
    ann = client(own, "ann")
    join = ->(one, presence, channel = ROOM) { one.command("join", channel, presence: presence) }
    join.call(ann, { id: "ann", info: { name: "Ann" } })
    assert_match(/join_presence of its channel, or with a presence token/, error(ann))
    [[token("room:1", "bob"), /for another id/], [token("room:2", "ann"), /a stream that the subscription does not have/],
     [token("room:1", "ann", {}, until: 1), /time of the presence token is over/], [sign('"room:1"'), /not one of presence_token/],
     [sign(JSON.generate(presence: { stream: "room:1", id: "ann" }), "other" * 10), /not signed/], ["x", /not signed/]].each_with_index do |(info, why), i|
      join.call(ann, { id: "ann", info: info })
      assert_match why, error(ann, i + 2)
    end
    join.call(ann, { id: "ann", info: token("room:1", "ann", { "name" => "Ann" }) })
    wait_for_events(ann, "join ann")
    join.call(ann, { id: "ann", info: { "name" => "Another" } })
    assert_equal({ "ann" => { "name" => "Ann" } }, members(ann))
    assert_empty(ann.messages.select { |message| message["said"] })
    pubsub = { channel: "$pubsub", signed_stream_name: sign('"room:1"') }
    bob = client(own, "bob", pubsub, subscribing: { presence: { id: "bob", info: token("room:1", "bob") } })
    wait_for_events(ann, "join ann", "join bob")
    bob.command("presence", pubsub, data: { return_records: false })
    assert_equal({ "type" => "info", "total" => 2 }, bob.wait_for(type: "presence", message: { type: "info" })["message"])
    zed = client(own, "zed", pubsub)
    join.call(zed, { id: "zed", info: {} }, pubsub)
    assert_match(/presence token/, error(zed))
    zed.command("presence", { channel: "NoSuch" })
    assert_match(/no such subscription/, error(zed, 2))
    assert_equal 9, own.stats.dig("hub", "rejected")
  end

  it "allows claims, but not to be a member of whom the app has said it" do
    own = hub(settings: { hub: { presence_claims: true } })
    ann = client(own, "ann")
    ann.perform(ROOM, "enter")
    wait_for_events(ann, "join ann")
    bob = client(own, "bob", ROOM, subscribing: { presence: { id: "bob", info: { name: "Bob" } } })
    wait_for_events(ann, "join ann", "join bob")
    bob.command("join", ROOM, presence: { id: "ann", info: { name: "fake" } })
    assert_match(/for whom the app vouches/, error(bob))
    assert_equal({ "ann" => { "name" => "ann" }, "bob" => { "name" => "Bob" } }, members(bob))
    bob.command("join", ROOM, presence: { id: "robert" })
    wait_for_events(ann, "join ann", "join bob", "leave bob", "join robert")
    assert_equal({ "ann" => { "name" => "ann" }, "robert" => {} }, members(bob))
  end

  it "keeps to its limits, and ignores commands that cannot be read" do
    own = hub(settings: { hub: { presence_claims: true, presence_members: 2, presence_memory: "4KiB" } })
    clients = %w[a b c].map { |user| client(own, user) }
    clients.each_with_index { |one, i| one.command("join", ROOM, presence: { id: "m#{i}", info: {} }) }
    failed = nil
    wait_until("one of three to be refused") do
      clients.each { |one| one.listen(0.05) }
      failed = clients.find { |one| one.messages.any? { |message| message.dig("message", "type") == "error" } }
    end
    assert_match(/has 2 members; hub\.presence_members is the limit/, error(failed))
    [[{ id: "" }, /the id of the member is empty/], [{ id: "x" * 257 }, /longer than 256 bytes/],
     [{ id: "x", info: "y" * 5000 }, /the info of the member is longer than 4096 bytes/]].each_with_index do |(presence, why), i|
      failed.command("join", ROOM, presence: presence)
      assert_match why, error(failed, i + 2)
    end
    present = clients.find { |one| one != failed }
    present.command("join", ROOM, presence: { id: members(present).keys.first, info: "y" * 3900 })
    assert_match(/hub\.presence_memory is the limit/, error(present))
    before = own.stats.dig("hub", "violations")
    ['{"command":"join","identifier":"{}"}', '{"command":"join","identifier":"{}","presence":{"id":{}}}',
     '{"command":"join","identifier":"{}","presence":[]}', '{"command":"leave"}', '{"command":"presence","identifier":7}',
     '{"command":"subscribe","identifier":"{}","presence":"x"}'].each { |text| failed.send_text(text) }
    wait_until("the commands to be counted") { own.stats.dig("hub", "violations") == before + 6 }
    failed.command("leave", { channel: "NoSuch" })
    failed.command("leave", ROOM)
    assert_equal 2, members(failed).size
    clients.each { |one| assert_nil one.closed }
    socket = UNIXSocket.new(File.join(own.dir, "tmp/firebrick-hub.sock"))
    socket.write("PUBLISH 6 29\nroom:1{\"$presence\":{\"type\":\"join\"}}")
    assert_match(/\AERROR the message for "room:1" begins with/, socket.gets)
    socket.write("PRESENCE 0\n")
    assert_match(/\AERROR expected PRESENCE and a length/, socket.gets)
    assert_nil socket.gets
  end

  it "holds a client back that comes and goes in a loop" do
    own = hub(settings: { hub: { presence_claims: true } })
    watcher = client(own, "eve")
    flood = client(own, "flood")
    began = now
    50.times do |i|
      flood.command("join", ROOM, presence: { id: "f#{i}" })
      flood.command("leave", ROOM)
    end
    watcher.wait { seen(watcher).size == 100 }
    assert_operator now - began, :>, 1.5
    assert_equal (0...50).flat_map { |i| ["join f#{i}", "leave f#{i}"] }, seen(watcher)
  end

  it "passes members on to a new program, unseen" do
    own = hub(upgradable: true, binds: ["tcp://127.0.0.1:0?h2c=true"], settings: { hub: { presence_expiry: "4s" } })
    ann = client(own, "ann", HERE)
    bob = client(own, "bob", HERE, version: "HTTP/2")
    wait_for_events(ann, "join ann", "join bob")
    2.times do |i|
      own.follow(new_pid(assert_upgrades(own, follow: false)))
      assert_equal %w[ann bob], members(ann, HERE).keys
      bob.wait_for_close if i.zero?
      bob = client(own, "bob", HERE, version: "HTTP/2") if i.zero?
    end
    bob.wait_for_close
    wait_for_events(ann, "join ann", "join bob", "leave bob")
    ann.perform(HERE, "quit")
    wait_for_events(ann, "join ann", "join bob", "leave bob", "leave ann")
    assert_equal [1, 2, 3, 4], offsets(ann)
    assert_nil ann.closed
  end

  WebSocket::VERSIONS.each do |version|
    it "serves #{version}" do
      skip "needs Go" if version == "HTTP/3" && !QuicGo.client
      own = hub(binds: WebSocket::BINDS, extra: pair("own", "localhost", "127.0.0.1"))
      one = client(own, "ann", HERE, version: version)
      wait_for_events(one, "join ann")
      one.command("leave", HERE)
      wait_for_events(one, "join ann", "leave ann")
    end
  end

  it "has pages that only listen as members, by a token" do
    own = hub(env: { "FIREBRICK_HUB_SECRET" => SECRET })
    watcher = client(own, "eve", { channel: "$pubsub", signed_stream_name: sign('"room:1"') })
    path = ->(**more) { "/cable/events?#{URI.encode_www_form(stream: sign('"room:1"'), **more)}" }
    one = closed_at_end(EventClient.new(own, path.call(presence: token("room:1", "ann", { "name" => "Ann" }))))
    event = one.wait { one.events.find { |known| known.type == "presence" } }
    assert_equal({ "type" => "join", "id" => "ann", "info" => { "name" => "Ann" } }, JSON.parse(event.data))
    wait_for_events(watcher, "join ann")
    one.close
    wait_for_events(watcher, "join ann", "leave ann")
    polled = get(path.call(poll: 1, presence: token("room:1", "bob"), last_event_id: event.id), to: own).json
    assert_equal [{ "stream" => "room:1", "offset" => 2, "type" => "presence", "data" => { "type" => "leave", "id" => "ann" } }], polled["messages"]
    wait_for_events(watcher, "join ann", "leave ann", "join bob", "leave bob")
    assert_status 403, get(path.call(presence: "x"), to: own)
    assert_status 403, get(path.call(presence: token("room:1", "ann", {}, until: 5)), to: own)
    response = get(path.call(presence: token("room:2", "ann")), to: own)
    assert_status 400, response
    assert_includes response.body, "is not listened to"
    response = get(path.call(presence: token("room:1", "a" * 300)), to: own)
    assert_status 503, response
    assert_includes response.body, "longer than 256 bytes"
  end

  # Opens an address in a page, and waits until it listens.
  def shown(page, url)
    page.send(:command, "Page.navigate", { url: url })
    page.wait("document.getElementById('state')?.textContent == 'live'")
    page
  end

  def here(page, *names) = page.wait("[...document.querySelectorAll('#members li')].map((item) => item.textContent).join() == #{names.join(',').to_json}")

  it "runs the example that shows who is here" do
    folder = File.join(Server::ROOT, "examples/presence")
    files = Dir.children(folder).to_h { |name| [name, File.read(File.join(folder, name))] }
    own = start(files: files, settings: File.read(File.join(folder, "firebrick.toml")), workers: 1, leaves: %w[tmp], env: { "FIREBRICK_HUB_SECRET" => SECRET })
    data = JSON.parse(get("/?name=%3Ci%3EAnn", to: own).body[/const \{ me, members, events \} = (.*);$/, 1])
    one = closed_at_end(EventClient.new(own, data["events"]))
    event = one.wait { one.events.find { |known| known.type == "presence" } }
    assert_equal({ "type" => "join", "id" => data["me"], "info" => { "name" => "<i>Ann" } }, JSON.parse(event.data))
    again = get("/?name=Eve", to: own, headers: { "Cookie" => "visitor=#{data['me']}" })
    assert_includes again.body, %("members":{"#{data['me']}":{"name":"\\u003ci>Ann"}})
    next unless Browser.installed?

    begin
      browser = Browser.new
      first = shown(browser.page, own.url("/?name=Bob"))
      here(first, "<i>Ann", "Bob")
      second = shown(browser.page, own.url("/?name=Cleo"))
      [first, second].each { |page| here(page, "<i>Ann", "Bob", "Cleo") }
      browser.forget(second)
      here(first, "<i>Ann", "Bob")
      one.close
      here(first, "Bob")
    ensure
      browser&.close
    end
  end

  it "asks for members again when the server ends in the middle of its answer" do
    Dir.mktmpdir do |dir|
      server = UNIXServer.new(File.join(dir, "hub.sock"))
      answers = ["OK 20\n{\"7\":", "OK 8\n{\"7\":{}}"]
      answering = Thread.new do
        answers.each do |answer|
          socket = server.accept
          socket.readpartial(100)
          socket.write(answer)
          socket.close
        end
      end
      publisher = Firebrick::Hub::Publisher.new(server.path)
      assert_equal({ "7" => {} }, publisher.presence("room"))
      answering.join
    ensure
      publisher&.close
      server&.close
    end
  end

  # Two servers of a group.
  def pair_of_hubs(url, hub: {}, **options)
    Array.new(2) { hub(settings: { hub: { redis: url, **hub } }, **options) }
  end

  it "has the members of all servers with Redis" do
    with_redis do |url, _|
      own, other = pair_of_hubs(url)
      ann = client(own, "ann", HERE)
      bob = client(other, "bob", HERE)
      [ann, bob].each { |one| one.wait { seen(one).include?("join bob") } }
      [ann, bob].each { |one| assert_equal %w[ann bob], members(one, HERE).keys }
      assert_equal([%w[ann bob]] * 2, [own, other].map { |server| asked(server, "here:1").keys })
      # A tab on each server is one member, and one that comes back at another server has not left.
      tab = client(other, "ann", HERE)
      ann.close
      sleep 2
      assert_equal ["join bob"], seen(bob)
      tab.close
      back = client(own, "ann", HERE)
      sleep 2
      assert_equal ["join bob"], seen(bob)
      back.perform(HERE, "quit")
      wait_for_events(bob, "join bob", "leave ann")
      bob.close
      wait_for_events(back, "leave ann", "leave bob")
      assert_equal([{}] * 2, [own, other].map { |server| asked(server, "here:1") })
      assert_nothing_left(url)
    end
  end

  # Redis has nothing about members.
  def assert_nothing_left(url)
    wait_until("Redis to forget all members") { redis_keys(url).grep(/:(members|sessions)/).empty? }
    assert_empty redis_keys(url).grep(/:(members|sessions)/)
  end

  def redis_keys(url)
    socket = TCPSocket.new("127.0.0.1", url[%r{:(\d+)/}, 1])
    socket.write("KEYS *\r\n")
    Array.new(socket.gets[1..].to_i) { socket.read(socket.gets[1..].to_i + 2).chomp }
  ensure
    socket&.close
  end

  it "lets the members of a server go that is not heard any more, and has them again, with Redis" do
    with_redis do |url, _|
      own, other = pair_of_hubs(url)
      ann = client(own, "ann", HERE)
      client(other, "bob", HERE)
      wait_for_events(ann, "join ann", "join bob")
      # Leases are renewed.
      sleep 6
      assert_equal %w[ann bob], members(ann, HERE).keys
      Process.kill(:STOP, other.pid)
      wait_for_events(ann, "join ann", "join bob", "leave bob")
      Process.kill(:CONT, other.pid)
      wait_for_events(ann, "join ann", "join bob", "leave bob", "join bob")
    ensure
      Process.kill(:CONT, other.pid) if other
    end
  end

  it "keeps to the limits and to the app's word on all servers, with Redis" do
    with_redis do |url, _|
      own, other = pair_of_hubs(url, hub: { presence_members: 2, presence_claims: true })
      ann = client(own, "ann")
      ann.perform(ROOM, "enter")
      claims = client(other, "eve", ROOM)
      claims.command("join", ROOM, presence: { id: "ann", info: {} })
      assert_match(/the app vouches/, error(claims))
      claims.command("join", ROOM, presence: { id: "bob", info: { a: "/ü\u0001" } })
      wait_for_events(ann, "join ann", "join bob")
      assert_equal({ "a" => "/ü\u0001" }, members(ann)["bob"])
      third = client(other, "zed")
      third.perform(ROOM, "enter")
      assert_match(/the stream has 2 members/, error(third))
      # It leaves one member for another, so there is room.
      claims.command("join", ROOM, presence: { id: "carl", info: {} })
      wait_for_events(ann, "join ann", "join bob", "leave bob", "join carl")
      assert_equal %w[ann carl], asked(other, "room:1").keys.sort
    end
  end

  it "goes on without Redis, and brings all members again when it is back" do
    with_redis do |url, pid|
      own, other = pair_of_hubs(url, hub: { presence_expiry: "4s" })
      ann = client(own, "ann", HERE)
      bob = client(other, "bob", HERE)
      wait_for_events(ann, "join ann", "join bob")
      Process.kill(:KILL, pid)
      carl = client(own, "carl", HERE)
      carl.command("presence", HERE)
      assert_match(/the members are not known: Redis on/, error(carl))
      # Without its memory.
      redis_on(Integer(url[%r{:(\d+)/}, 1])) do
        [ann, bob].each { |one| one.wait(30) { (%w[ann bob carl].map { |id| "join #{id}" } - seen(one)).empty? } }
        wait_until("all members") { asked(other, "here:1").keys == %w[ann bob carl] }
        assert_equal %w[ann bob carl], members(bob, HERE).keys
        assert_nil ann.closed
      end
    end
  end

  it "passes members on to a new program, unseen, with Redis" do
    with_redis do |url, _|
      own = hub(upgradable: true, settings: { hub: { redis: url, presence_expiry: "4s" } })
      ann = client(own, "ann", HERE)
      bob = client(own, "bob", HERE)
      wait_for_events(ann, "join ann", "join bob")
      own.follow(new_pid(assert_upgrades(own, follow: false)))
      assert_equal %w[ann bob], members(ann, HERE).keys
      bob.perform(HERE, "quit")
      wait_for_events(ann, "join ann", "join bob", "leave bob")
      ann.close
      wait_until("the last to go", within: 20) { asked(own, "here:1").empty? }
      assert_nothing_left(url)
    end
  end
end
