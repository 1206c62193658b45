# frozen_string_literal: true

# Live pages: clients that show a token when they connect, so the app is not called for it.

require "json"
require "support/any_cable_app"
require "support/case"
require "support/hub_app"
require "support/json_web_token"
require "support/tls_case"
require "uri"

# With an app that answers AnyCable's RPC.
class HubTokenTest < TlsCase
  parallel!

  include AnyCableApp

  PROTOCOL = "actioncable-v1-ext-json"
  DISCONNECT = { "type" => "disconnect", "reconnect" => false }.freeze

  def setup
    firebrick_only
  end

  # A token of AnyCable's gem.
  def token(user = "tom", secret: SECRET, header: {}, **claims)
    JsonWebToken.of({ ext: JSON.generate(user: user), exp: Time.now.to_i + 600, iat: Time.now.to_i }.merge(claims), secret, header)
  end

  # A client with a token in its address.
  def bearer(own, shown = token, **options)
    closed_at_end(CableClient.new(own, path: "/cable?a=%2B&jid=#{shown}", **options))
  end

  def calls(own) = File.exist?(own.path("calls")) ? File.readlines(own.path("calls"), chomp: true) : []

  { "HTTP/1.1" => {}, "HTTP/2" => { fibers: 10, threads: "1:1" }, "HTTP/3" => { env: { "FIREBRICK_PURE" => "1" } } }.each do |version, options|
    it "knows a client by its token, wherever that is (#{version})" do
      skip "fibers are CRuby's" if options[:fibers] && !Server.cruby?
      skip "needs Go and quic-go: script/setup test" if version == "HTTP/3" && !QuicGo.client
      own = hub(**options, **(version == "HTTP/1.1" ? {} : { binds: WebSocket::BINDS, files: pair("own", "localhost", "127.0.0.1") }))
      shown = token
      one = bearer(own, shown, version: version).subscribed(ROOM)
      in_field = client(own, version: version, fields: { "X-JID" => shown }).subscribed(ROOM)
      as_protocol = client(own, version: version, fields: { "Sec-WebSocket-Protocol" => "#{PROTOCOL}, anycable-token.#{shown}" }).subscribed(ROOM)
      assert_equal PROTOCOL, as_protocol.socket.fields["sec-websocket-protocol"]
      by_app = listener(own, version: version, protocol: PROTOCOL)
      { one => "tom", in_field => "tom", as_protocol => "tom", by_app => "ann" }.each_with_index do |(each, user), i|
        assert_equal(1, each.messages.count { |message| message["type"] == "welcome" })
        each.perform(ROOM, "say", text: i)
        each.wait_for(message: { said: i })
        next if user == "tom"

        each.perform(ROOM, "count")
        each.wait_for(message: { user: user })
      end
      assert_equal(["connect ann"], calls(own).grep(/\Aconnect/).map { |line| line[/\Aconnect \w+/] })
      one.socket.write(WebSocket.frame([1000].pack("n"), opcode: 8))
      assert_equal 1000, one.wait_for_close
      wait_until("the app to know of the end") { calls(own).any?(/\Adisconnect tom 1 /) }
    end
  end

  it "refuses tokens that are not valid, and says so if they were" do
    own = hub
    { token(exp: Time.now.to_i - 1) => "token_expired", token(secret: "another" * 6) => "unauthorized", token(exp: Time.now.to_i - 1, secret: "another" * 6) => "unauthorized",
      token(nbf: Time.now.to_i + 600) => "unauthorized", token(header: { alg: "none" }) => "unauthorized", token(ext: "tom") => "unauthorized", token(ext: nil) => "unauthorized",
      "x" => "unauthorized", "#{token}x" => "unauthorized" }.each do |shown, reason|
      refused = bearer(own, shown)
      assert_equal 1000, refused.wait_for_close, shown
      assert_equal [DISCONNECT.merge("reason" => reason)], refused.messages, shown
    end
    assert_empty calls(own), "the app is not asked instead"
    # An empty one is none.
    listener(own, fields: { "X-JID" => "" })
    assert_equal 9, own.stats.dig("hub", "rejected")
  end

  it "can have a secret of its own and another parameter, and let in nobody without a token" do
    secret = "fedcba9876543210" * 2
    own = hub(settings: { hub: { jwt_param: "pass", jwt_required: true } }, env: { "ANYCABLE_JWT_SECRET" => secret })
    shown = token(secret: secret, ext: { user: "tom" })
    ["/cable?pass=#{shown}", "/cable?pass=x&pass=#{shown}", "/cable?jid=#{shown}", "/cable?user=ann"].zip([true, false, false, false]) do |path, known|
      one = closed_at_end(CableClient.new(own, path: path))
      next one.subscribed(ROOM) if known

      one.wait_for_close
      assert_equal [DISCONNECT.merge("reason" => "unauthorized")], one.messages, path
    end
    client(own, fields: { "X-Pass" => shown }).subscribed(ROOM)
    assert_empty calls(own)
  end

  it "says that it can check no token" do
    own = hub
    File.write(own.path("firebrick.toml"), %([hub]\npath = "/cable"\njwt_required = true\n))
    _, err, code = own.command_line("check")
    refute_equal 0, code
    assert_includes err, "no token can be checked: set hub.jwt_secret, or hub.secret"
  end

  it "stays who it is over an upgrade, and is ended by its identifiers" do
    own = hub(upgradable: true)
    one, other = %w[tom eve].map { |user| bearer(own, token(user)).subscribed(ROOM) }
    idle = bearer(own, token("ida"))
    idle.wait_for(type: "welcome")
    own.follow(new_pid(assert_upgrades(own, follow: false)))
    one.perform(ROOM, "say", text: "here")
    other.wait_for(message: { said: "here" })
    assert_status 201, broadcast(own, { command: "disconnect", payload: { identifier: '{"user":"tom"}', reconnect: true } })
    one.wait_for_close
    assert_equal DISCONNECT.merge("reason" => "remote", "reconnect" => true), one.messages.last
    wait_until("the app to know of the end") { calls(own).any?(/\Adisconnect tom 1 /) }
    idle.close
    wait_until("one to be left") { own.stats.dig("hub", "clients") == 1 }
    other.close
    wait_until("the app to know of the other end") { calls(own).any?(/\Adisconnect eve 1 /) }
    refute calls(own).any?(/ida/), "the app has never known of a client without channels"
  end
end

# With channels of Rails.
class HubTokenRailsTest < Case
  parallel!

  include HubApp

  ROOM = { channel: "LiveChannel", room: "1" }.freeze

  FORM = { "Content-Type" => "application/x-www-form-urlencoded", "Host" => "127.0.0.1" }.freeze

  # The address of the client of a page, with the token that is in the page's head.
  def address_for(own, user)
    page = get("/hub/head_of_page?user=#{user}", to: own, headers: { "Host" => "127.0.0.1" }).body
    path = page[/<meta name="action-cable-url" content="([^"]+)"/, 1]
    assert_equal path, "/cable?jid=#{page[/<meta name="cable-token" content="([^"]+)"/, 1]}"
    path
  end

  # A client that connects by a token, from any origin.
  def bearer(own, path) = closed_at_end(CableClient.new(own, path: path, fields: { "Origin" => "https://other.example" }))

  # The identifiers that a controller finds in the token.
  def bearer_of(own, path) = get("/hub/bearer?#{URI(path).query}", to: own, headers: { "Host" => "127.0.0.1" }).body

  it "has the identifiers and records of its token in channels" do
    # An empty variable is none.
    own = hub(env: { "FIREBRICK_HUB_SECRET" => SECRET, "FIREBRICK_JWT_SECRET" => "" })
    assert_status 204, post("/hub/publish_entry", "text=tom", to: own, headers: FORM)
    one, other = %w[tom eve].map { |user| bearer(own, address_for(own, user)).subscribed(ROOM) }
    { one => { user: "tom", entry: "tom" }, other => { user: "eve", entry: nil } }.each do |each, known|
      2.times { |i| each.perform(ROOM, "count").then { each.wait_for(message: { count: i + 1, **known }) } }
    end
    # `connect` has not run.
    assert_includes one.received, { "welcome" => nil }
    assert_status 204, post("/hub/publish_entry", "text=tom", to: own, headers: FORM)
    one.wait { one.received.any? { |message| message.is_a?(Hash) && message["about"] } }
    watcher = closed_at_end(CableClient.new(own, path: "/cable?user=eve")).subscribed({ channel: "EndsChannel" })
    assert_status 204, post("/hub/disconnect", "user=eve", to: own, headers: FORM)
    other.wait_for(type: "disconnect", reason: "remote")
    [watcher, other].each(&:wait_for_close)
    one.perform(ROOM, "count")
    one.wait_for(message: { count: 3 })
    # The record of a valid token has gone.
    path = address_for(own, "tom")
    assert_equal '{"user":"tom","entry":"tom"}', bearer_of(own, path)
    assert_status 204, post("/hub/forget_entry", "text=tom", to: own, headers: FORM)
    late = bearer(own, path).subscribed(ROOM)
    late.perform(ROOM, "count")
    late.wait_for(message: { count: 1, user: "tom", entry: nil })
    # The app refuses the tokens that the server refuses: claims of another kind, critical extensions, a signature with an empty key.
    refused = [{ mercure: {} }, { ext: nil }, { ext: 7 }, { ext: [1] }, { ext: "[1]" }].map { |claims| JsonWebToken.of(claims, SECRET) }
    refused << JsonWebToken.of({ ext: {} }, SECRET, crit: []) << JsonWebToken.of({ ext: {} }, "")
    refused.each { |shown| assert_equal "null", bearer_of(own, "/cable?jid=#{shown}"), shown }
    assert_empty get("/hub/head_of_page", to: own, headers: { "Host" => "127.0.0.1" }).body.strip, "a visitor without identifiers has no token"
    { path => '{"user":"tom"}', "#{path}x" => "null", "/cable" => "null" }.each { |address, known| assert_equal known, bearer_of(own, address) }
  end
end
