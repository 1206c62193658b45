# frozen_string_literal: true

# HTTP/2 requests that would have another meaning when translated to HTTP/1. Each is refused, or arrives as exactly one
# request with its original meaning. Behind the server are an app and an origin: neither ever sees /smuggled.

require "support/http2_case"
require "support/site_server"
require "support/backend"

class Http2RewritingTest < Http2Case
  in_turn!

  APP = <<~'RUBY'
    require "json"
    run lambda { |env|
      File.write("seen.log", "#{env['REQUEST_METHOD']} #{env['REQUEST_URI']}\n", mode: "a")
      body = env["rack.input"] ? env["rack.input"].read : ""
      plain = env.select { |key, value| value.is_a?(String) && key.match?(/\A[A-Z_]+\z/) }
      [200, { "content-type" => "application/json" }, [JSON.generate(plain.merge("body" => body))]]
    }
  RUBY

  PSEUDO = [[":method", "POST"], [":scheme", "http"], [":authority", "example.test"], [":path", "/attack"]].freeze
  SMUGGLED = "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"

  def self.with(*fields)
    PSEUDO + fields
  end

  # The usual pseudo-fields with one of them replaced.
  def self.pseudo(name, value, *fields)
    PSEUDO.map { |known, usual| [known, known == name ? value : usual] } + fields
  end

  def self.without(name, *fields)
    PSEUDO.reject { |known, _| known == name } + fields
  end

  # description => [fields, body or nil]
  REFUSED = {
    # line breaks and NUL
    "CR LF in a value" => [with(["x-a", "b\r\ntransfer-encoding: chunked"]), nil],
    "CR LF and a request in a value" => [with(["x-a", "b\r\n\r\n#{SMUGGLED}"]), nil],
    "LF in a value" => [with(["x-a", "b\nx-b: c"]), nil],
    "CR in a value" => [with(["x-a", "b\rx-b: c"]), nil],
    "NUL in a value" => [with(["x-a", "b\0c"]), nil],
    "CR LF in a name" => [with(["x-a\r\nx-b", "c"]), nil],
    "LF in a name" => [with(%W[x-a\nx-b c]), nil],
    "NUL in a name" => [with(["x\0a", "c"]), nil],
    "a colon in a name" => [with(["transfer-encoding: chunked\r\nx", "c"]), nil],
    "a colon behind a name" => [with(["x-a:", "c"]), nil],
    "a blank in a name" => [with(["x a", "c"]), nil],
    "a blank behind a name" => [with(["content-length ", "5"]), nil],
    "a blank before a value" => [with(["x-a", " c"]), nil],
    "a tab behind a value" => [with(%W[x-a c\t]), nil],
    "a name with a byte above 127" => [with(["x-\xE4", "c"]), nil],
    "an empty name" => [with(["", "c"]), nil],
    "DEL in a name" => [with(["x\x7F", "c"]), nil],
    # names
    "upper case in a name" => [with(%w[X-Mine c]), nil],
    "upper case in transfer-encoding" => [with(%w[Transfer-Encoding chunked]), "0\r\n\r\n#{SMUGGLED}"],
    # fields of the connection
    "transfer-encoding: chunked" => [with(%w[transfer-encoding chunked]), "0\r\n\r\n#{SMUGGLED}"],
    "transfer-encoding: identity" => [with(%w[transfer-encoding identity]), nil],
    "connection: close" => [with(%w[connection close]), nil],
    "connection that names a field" => [with(%w[connection x-mine], %w[x-mine 1]), nil],
    "keep-alive" => [with(["keep-alive", "timeout=5"]), nil],
    "proxy-connection" => [with(%w[proxy-connection close]), nil],
    "upgrade" => [with(%w[upgrade websocket]), nil],
    "upgrade to h2c" => [with(%w[upgrade h2c], ["http2-settings", ""], %w[connection upgrade]), nil],
    "te with more than trailers" => [with(%w[te gzip]), nil],
    "te with a list" => [with(["te", "trailers, chunked"]), nil],
    # lengths
    "a length above the body" => [with(%w[content-length 50]), "12345"],
    "a length below the body" => [with(%w[content-length 5]), "12345#{SMUGGLED}"],
    "a length of 0 with a body" => [with(%w[content-length 0]), SMUGGLED],
    "two differing lengths" => [with(%w[content-length 5], %w[content-length 6]), "12345"],
    "two equal lengths" => [with(%w[content-length 5], %w[content-length 5]), "12345"],
    "a list of lengths" => [with(["content-length", "5, 5"]), "12345"],
    "a signed length" => [with(%w[content-length +5]), "12345"],
    "a negative length" => [with(%w[content-length -5]), "12345"],
    "a hexadecimal length" => [with(%w[content-length 0x5]), "12345"],
    "a length without digits" => [with(["content-length", ""]), "12345"],
    "a length beyond 64 bits" => [with(%w[content-length 18446744073709551621]), "12345"],
    # method
    "a request line in the method" => [pseudo(":method", "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\nGET"), nil],
    "a blank in the method" => [pseudo(":method", "GET /smuggled"), nil],
    "an empty method" => [pseudo(":method", ""), nil],
    "no method" => [without(":method"), nil],
    "two methods" => [[%w[:method GET]] + PSEUDO, nil],
    "CONNECT" => [pseudo(":method", "CONNECT"), nil],
    "CONNECT as it should be" => [[%w[:method CONNECT], %w[:authority example.test:80]], nil],
    # path
    "CR LF in the path" => [pseudo(":path", "/attack HTTP/1.1\r\nHost: x\r\n\r\nGET /smuggled"), nil],
    "a blank in the path" => [pseudo(":path", "/attack /smuggled"), nil],
    "a version in the path" => [pseudo(":path", "/attack HTTP/1.1"), nil],
    "a tab in the path" => [pseudo(":path", "/attack\t/smuggled"), nil],
    "NUL in the path" => [pseudo(":path", "/attack\0"), nil],
    "an empty path" => [pseudo(":path", ""), nil],
    "a path without a slash" => [pseudo(":path", "smuggled"), nil],
    "an absolute path" => [pseudo(":path", "http://elsewhere.test/smuggled"), nil],
    "an asterisk with POST" => [pseudo(":path", "*"), nil],
    "a fragment in the path" => [pseudo(":path", "/attack#smuggled"), nil],
    "no path" => [without(":path"), nil],
    "two paths" => [PSEUDO + [%w[:path /smuggled]], nil],
    # scheme
    "no scheme" => [without(":scheme"), nil],
    "two schemes" => [[%w[:scheme https]] + PSEUDO, nil],
    "a request in the scheme" => [pseudo(":scheme", "http://x/smuggled HTTP/1.1\r\n"), nil],
    # authority
    "CR LF in the authority" => [pseudo(":authority", "x\r\nx-b: c"), nil],
    "a path in the authority" => [pseudo(":authority", "x/smuggled"), nil],
    "a user in the authority" => [pseudo(":authority", "user@x"), nil],
    "a blank in the authority" => [pseudo(":authority", "x y"), nil],
    "two authorities" => [[%w[:authority other.test]] + PSEUDO, nil],
    "host differs from the authority" => [with(%w[host other.test]), nil],
    "two hosts" => [without(":authority", %w[host a.test], %w[host b.test]), nil],
    "neither authority nor host" => [without(":authority"), nil],
    "an empty authority" => [pseudo(":authority", ""), nil],
    # pseudo-fields
    "a pseudo-field behind a field" => [[%w[x-a b]] + PSEUDO, nil],
    "an unknown pseudo-field" => [PSEUDO + [%w[:smuggled yes]], nil],
    "a pseudo-field of responses" => [PSEUDO + [%w[:status 200]], nil],
    "the pseudo-field of extended CONNECT" => [pseudo(":method", "CONNECT") + [%w[:protocol websocket]], nil],
    # expectations
    "an unknown expectation" => [with(%w[expect tea]), nil]
  }.freeze

  # description => [fields, body, the request that the app sees]
  ACCEPTED = {
    "a length that is right" => [with(%w[content-length 5]), "12345", { "body" => "12345", "CONTENT_LENGTH" => "5" }],
    "a body that looks like a request" => [with, SMUGGLED, { "body" => SMUGGLED, "CONTENT_LENGTH" => SMUGGLED.bytesize.to_s }],
    "a body that looks like chunks" => [with, "0\r\n\r\n#{SMUGGLED}", { "body" => "0\r\n\r\n#{SMUGGLED}", "HTTP_TRANSFER_ENCODING" => nil }],
    "te: trailers" => [with(%w[te trailers]), nil, { "REQUEST_METHOD" => "POST" }],
    "host instead of an authority" => [without(":authority", %w[host given.test]), nil, { "HTTP_HOST" => "given.test", "SERVER_NAME" => "given.test" }],
    "host equal to the authority" => [with(%w[host example.test]), nil, { "HTTP_HOST" => "example.test" }],
    "a name with an underscore" => [with(%w[content_length 99], %w[x_mine 1]), nil, { "HTTP_X_MINE" => nil, "HTTP_CONTENT_LENGTH" => nil }],
    "a value with bytes above 127" => [with(%w[x-mine ä]), nil, { "HTTP_X_MINE" => "ä" }],
    "a field twice" => [with(%w[x-mine 1], %w[x-mine 2]), nil, { "HTTP_X_MINE" => "1, 2" }],
    "a double slash and dots" => [pseudo(":path", "//elsewhere.test/../smuggled-not"), nil, { "REQUEST_URI" => "//elsewhere.test/../smuggled-not", "HTTP_HOST" => "example.test" }],
    "encoded line breaks in the path" => [pseudo(":path", "/attack%0d%0aHost:%20x"), nil, { "REQUEST_URI" => "/attack%0d%0aHost:%20x" }],
    "a scheme that is not the connection's" => [pseudo(":scheme", "https"), nil, { "HTTPS" => nil }],
    "a proxy's word about itself" => [with(%w[proxy evil.test:80]), nil, {}]
  }.freeze

  shared_server app: APP, threads: "4:4"

  # Sends the fields and the body unchanged. Returns the result of the stream: a status, a reset, or the end of the connection.
  def attack(client, fields, body)
    stream = client.raw_request(fields, end_stream: body.nil?)
    client.write(client.data(stream, body)) if body
    client.read_until("an answer") { client.answers[stream].over? || client.goaway }
    client.answers[stream]
  rescue TruncatedResponse
    client.answers[stream]
  end

  def seen(own = server)
    File.exist?(own.path("seen.log")) ? File.read(own.path("seen.log")) : ""
  end

  REFUSED.each do |name, (fields, body)|
    it "refuses #{name}" do
      client = http2
      answer = attack(client, fields, body)
      refused = answer.reset || client.goaway || (400..501).cover?(answer.status)
      assert refused, "answered with #{answer.fields.inspect} #{answer.body}"
      refute_match(/smuggled/, seen.gsub("smuggled-not", ""))
      assert_equal "GET", JSON.parse(fetch("/after").body)["REQUEST_METHOD"], "the server goes on"
    end
  end

  ACCEPTED.each do |name, (fields, body, expected)|
    it "takes #{name} for what it is" do
      answer = attack(http2, fields, body)
      assert_equal 200, answer.status, answer.inspect
      env = JSON.parse(answer.body)
      expected.each { |key, value| value.nil? ? assert_nil(env[key], key) : assert_equal(value, env[key], key) }
    end
  end

  it "shows an app only what it may see after all of them" do
    client = http2
    REFUSED.each_value do |fields, body|
      client = http2 unless client.alive?
      attack(client, fields, body)
    end
    refute_match(%r{ /smuggled\b(?!-)}, seen)
  end

  it "shows an origin one request for each, framed by itself" do
    behind = Backend.new
    own = SiteServer.new(rules: { proxies: { "/": { origin: behind.origin } } }, binds: [BIND])
    @own_servers << own
    own.start
    client = http2(own)
    REFUSED.each_value do |fields, body|
      client = http2(own) unless client.alive?
      attack(client, fields, body)
    end
    refute(behind.requests.any? { |req| req.target.include?("smuggled") })
    before = behind.requests.size
    client = http2(own)
    ACCEPTED.each do |name, (fields, body, _)|
      answer = attack(client, fields, body)
      assert_equal 200, answer.status, name
      assert_equal body.to_s, JSON.parse(answer.body)["body"], name
    end
    assert_equal before + ACCEPTED.size, behind.requests.size
    behind.requests.each do |req|
      refute_match(/smuggled(?!-not)/, req.raw_head)
      assert_operator req.all("content-length").size + req.all("transfer-encoding").size, :<=, 1
      assert_equal 1, req.all("host").size
    end
  ensure
    behind&.close
  end
end
