# frozen_string_literal: true

# The hub of the Mercure protocol: publishers and subscribers with tokens.

require "json"
require "support/case"
require "support/event_client"
require "support/json_web_token"
require "support/redis_server"
require "support/web_socket"
require "uri"

class HubMercureTest < Case
  parallel!

  include RedisServer

  SECRET = "fedcba9876543210" * 4
  PATH = "/.well-known/mercure"
  APP = %(run ->(env) { [200, { "content-type" => "text/plain" }, ["the app has \#{env["PATH_INFO"]}"]] }\n)

  def setup
    firebrick_only
  end

  def hub(settings: {}, **options)
    settings = { hub: { path: "/cable", mercure: PATH, mercure_secret: SECRET }.merge(settings) }
    start(app: APP, settings: settings, workers: 1, leaves: %w[tmp], **options)
  end

  def token(secret: SECRET, header: {}, **claims) = JsonWebToken.of(claims, secret, header)

  def publisher(*topics) = token(mercure: { publish: topics })

  def publish(own, fields = nil, bearer: publisher("*"), headers: {}, **others)
    headers = { "Content-Type" => "application/x-www-form-urlencoded" }.merge(bearer ? { "Authorization" => "Bearer #{bearer}" } : {}, headers)
    post(PATH, URI.encode_www_form(fields || others), to: own, headers: headers)
  end

  def subscriber(own, *topics, rights: [], last: nil, query: {}, fields: {}, **options)
    fields = { "Authorization" => "Bearer #{token(mercure: { subscribe: rights })}" }.merge(fields).compact
    path = "#{PATH}?#{URI.encode_www_form(topics.map { |topic| ['topic', topic] } + query.to_a)}"
    closed_at_end(EventClient.new(own, path, fields: last ? fields.merge("Last-Event-ID" => last) : fields, **options)).tap do |one|
      one.wait { one.retry } if one.status == 200
    end
  end

  it "passes updates on to the subscribers of other servers through Redis" do
    with_redis do |url, pid|
      own, other = Array.new(2) { hub(settings: { redis: url }) }
      one = subscriber(other, "b")
      assert_status 200, publish(own, topic: "b", data: "there")
      one.wait_for("there")
      Process.kill(:STOP, pid)
      assert_status 503, publish(own, topic: "b", data: "nowhere")
    ensure
      Process.kill(:CONT, pid) if pid
    end
  end

  %w[HTTP/1.1 HTTP/2].each do |version|
    it "passes updates to subscribers of their topics over #{version}" do
      own = hub(binds: ["tcp://127.0.0.1:0?h2c=true"])
      one = subscriber(own, "https://shop.test/books/1", "b", version: version)
      all = subscriber(own, "*", version: version)
      assert_equal ["text/event-stream", "no-store"], one.fields.values_at("content-type", "cache-control")
      response = publish(own, [%w[topic https://shop.test/books/1], %w[topic b], %W[data x\ny], %w[id 7], %w[type change], %w[retry 1500]])
      assert_status 200, response
      assert_equal "7", response.body
      event = one.wait_for("x\ny")
      assert_equal ["7", "change", 1500], [event.id, event.type, one.retry]
      assert_match(/\Aurn:uuid:\h{8}-\h{4}-4\h{3}-[89ab]\h{3}-\h{12}\z/, publish(own, topic: "c", data: "c").body)
      all.wait_for("c")
      assert_equal %W[x\ny c], all.data
      assert_equal ["x\ny"], one.data
      assert_equal 2, own.stats.dig("hub", "mercure")
      assert_includes own.metrics, 'firebrick_hub_listeners{transport="mercure"} 2'
    end
  end

  it "keeps private updates from those who may not have them" do
    own = hub
    allowed = subscriber(own, "*", rights: ["a"])
    others = subscriber(own, "a", rights: ["b"])
    publish(own, topic: "a", data: "secret", private: "")
    publish(own, topic: "b", data: "other", private: "on")
    publish(own, topic: "a", data: "public")
    [allowed, others].each { |one| one.wait_for("public") }
    assert_equal %w[secret public], allowed.data
    assert_equal %w[public], others.data
    by_cookie = subscriber(own, "a", fields: { "Authorization" => nil, "Cookie" => "mercureAuthorization=#{token(mercure: { subscribe: ['*'] })}" }, last: "earliest")
    by_cookie.wait_for("public")
    assert_equal %w[secret public], by_cookie.data
    by_query = subscriber(own, "a", fields: { "Authorization" => nil }, query: { authorization: token(mercure: {}), lastEventID: "earliest" })
    by_query.wait_for("public")
    assert_equal %w[public], by_query.data
  end

  it "resumes after an update, or from the earliest that is kept" do
    own = hub(settings: { history_messages: 3 })
    %w[1 2 3].each { |id| publish(own, topic: "a", id: id, data: "m#{id}") }
    cut = subscriber(own, "a")
    assert_equal "3", cut.last_id
    assert_nil cut.fields["last-event-id"]
    back = subscriber(own, "a", last: "1")
    back.wait_for("m3")
    assert_equal [%w[m2 m3], "1"], [back.data, back.fields["last-event-id"]]
    publish(own, topic: "a", id: "4", data: "m4")
    [back, cut].each { |one| one.wait_for("m4") }
    lost = subscriber(own, "a", last: "1")
    lost.wait_for("m4")
    assert_equal [%w[m2 m3 m4], "earliest"], [lost.data, lost.fields["last-event-id"]]
    assert_equal [1, 1], own.stats["hub"].values_at("resumed", "gaps")
  end

  it "refuses what it must, and says why" do
    own = hub(settings: { max_subscriptions: 2, origins: ["https://shop.test"] })
    now = Time.now.to_i
    [[401, "a token is needed", { bearer: nil }], [401, "signature", { bearer: token(secret: "x" * 32, mercure: { publish: ["*"] }) }],
     [401, "expired", { bearer: token(exp: now - 1, mercure: { publish: ["*"] }) }],
     [401, "not valid yet", { bearer: token(nbf: now + 60, mercure: { publish: ["*"] }) }],
     [401, "HS256", { bearer: token(header: { alg: "none" }, mercure: { publish: ["*"] }) }],
     [403, "no claim mercure.publish", { bearer: token(mercure: { subscribe: ["*"] }) }],
     [403, 'does not cover "a"', { bearer: publisher("b") }],
     [415, "x-www-form-urlencoded", { headers: { "Content-Type" => "application/json" } }],
     [403, "must send Origin", { bearer: nil, headers: { "Cookie" => "mercureAuthorization=#{publisher('*')}" } }],
     [403, "https://elsewhere.test is not one", { headers: { "Origin" => "https://elsewhere.test" } }]].each do |status, reason, options|
      response = publish(own, { topic: "a" }, **options)
      assert_status status, response
      assert_includes response.body, reason
    end
    [[400, "no topic", { data: "x" }], [400, "begins with #", { topic: "a", id: "#1" }], [403, "hub's own", { topic: "#{PATH}/x" }],
     [413, "at most", { topic: "a", data: "x" * (1 << 20) }]].each do |status, reason, fields|
      response = publish(own, fields)
      assert_status status, response
      assert_includes response.body, reason
    end
    cookie = publish(own, { topic: "a" }, bearer: nil, headers: { "Cookie" => "mercureAuthorization=#{publisher('a')}", "Origin" => "https://shop.test" })
    assert_equal [200, "https://shop.test", "true"], [cookie.status, cookie["access-control-allow-origin"], cookie["access-control-allow-credentials"]]
    assert_equal 401, subscriber(own, "a", fields: { "Authorization" => nil }).status
    [[400, "no topic", PATH], [400, "more than 2", "#{PATH}?topic=a&topic=b&topic=c"], [400, "matchURLPattern", "#{PATH}?matchURLPattern=a"]].each do |status, reason, path|
      response = get(path, to: own)
      assert_status status, response
      assert_includes response.body, reason
    end
    deleted = ask(request("DELETE", "#{PATH}?topic=a"), to: own)
    assert_equal [405, "GET, HEAD, POST, OPTIONS"], [deleted.status, deleted["allow"]]
    assert_equal 204, ask(request("OPTIONS", PATH), to: own).status
    anonymous = hub(settings: { mercure_anonymous: true })
    one = subscriber(anonymous, "a", fields: { "Authorization" => nil })
    publish(anonymous, topic: "a", data: "secret", private: "on")
    publish(anonymous, topic: "a", data: "public")
    one.wait_for("public")
    assert_equal %w[public], one.data
  end

  it "is off unless it is asked for" do
    own = start(app: APP, settings: { hub: { path: "/cable" } }, workers: 1, leaves: %w[tmp])
    assert_equal "the app has #{PATH}", get("#{PATH}?topic=a", to: own).body
    closed = start(app: APP, settings: { hub: { path: "/cable", mercure: PATH } }, workers: 1, leaves: %w[tmp])
    response = get("#{PATH}?topic=a", to: closed)
    assert_status 404, response
    assert_includes response.body, "hub.mercure_secret is not set"
  end
end
