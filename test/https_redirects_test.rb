# frozen_string_literal: true

# https_only, canonical_host, hsts: the redirected requests, their targets, and the exceptions.

require "support/tls_case"

class HttpsRedirectsTest < TlsCase
  parallel!

  def both(settings: {}, hosts: %w[localhost www.a.test a.test], **rest)
    start(app: ENV_APP, files: pair("own", *hosts), settings:, binds: ["tcp://127.0.0.1:0", "ssl://127.0.0.1:0?cert=own.pem&key=own.key"], **rest)
  end

  def https_port(own)
    own.listeners[1][/\d+\z/].to_i
  end

  def location(own, path, host, headers = {})
    response = get(path, to: own, headers: { "Host" => host }.merge(headers))
    [response.status, response["location"]]
  end

  def secure_get(own, path, host)
    connection = TlsConnection.new(["127.0.0.1", https_port(own)], name: "localhost")
    @connections << connection
    connection.write(request("GET", path, "Host" => host))
    connection.read_response
  end

  it "redirects http to https, with path, query and port" do
    own = both(settings: { https_only: true })
    port = https_port(own)
    assert_equal [308, "https://localhost:#{port}/a/b?c=d&e"], location(own, "/a/b?c=d&e", "localhost:80")
    assert_equal [308, "https://a.test:#{port}/"], location(own, "/", "A.TEST")
    assert_status 200, secure_get(own, "/", "localhost")
    assert_equal 200, location(own, "/.well-known/acme-challenge/x", "localhost")[0]
    assert_equal 308, location(own, "/.well-known/../x", "localhost")[0]
    assert_equal [421, nil], location(own, "/", "evil.test")
    post = post("/form", "a=b", to: own, headers: { "Host" => "localhost" })
    assert_status 308, post
  end

  it "names another port of https, and leaves other paths alone" do
    own = both(settings: { https_only: true, https_port: 443, http_paths: ["/up", "/open/*"] })
    assert_equal [308, "https://localhost/x"], location(own, "/x", "localhost")
    assert_equal 200, location(own, "/up", "localhost")[0]
    assert_equal 308, location(own, "/up/", "localhost")[0]
    assert_equal 200, location(own, "/open/a/b", "localhost")[0]
    assert_equal 308, location(own, "/.well-known/x", "localhost")[0]
  end

  it "believes a trusted proxy about the scheme" do
    own = start(app: ENV_APP, settings: { https_only: true })
    forwarded = { "X-Forwarded-Proto" => "https" }
    assert_equal [308, "https://any.test/"], location(own, "/", "any.test")
    assert_equal 200, location(own, "/", "any.test", forwarded)[0]
    strict = start(app: ENV_APP, settings: { https_only: true, rack: { trusted_proxies: "none" } })
    assert_equal 308, location(strict, "/", "any.test", forwarded)[0]
  end

  it "redirects to the canonical host, over both" do
    own = both(settings: { canonical_host: "www.a.test" })
    assert_equal [308, "http://www.a.test/x?y"], location(own, "/x?y", "a.test")
    assert_equal [308, "http://www.a.test/x"], location(own, "/x", "evil.test")
    assert_equal 200, location(own, "/x", "www.a.test:80")[0]
    response = secure_get(own, "/x", "a.test")
    assert_equal [308, "https://www.a.test/x"], [response.status, response["location"]]
  end

  it "needs one redirect for both" do
    own = both(settings: { https_only: true, canonical_host: "www.a.test" })
    assert_equal [308, "https://www.a.test:#{https_port(own)}/x"], location(own, "/x", "a.test")
  end

  it "sends HSTS over https alone, and only if asked" do
    own = both(settings: { hsts: "1d; includeSubDomains" })
    assert_equal "max-age=86400; includeSubDomains", secure_get(own, "/", "localhost")["strict-transport-security"]
    assert_nil get("/", to: own)["strict-transport-security"]
    assert_nil secure_get(both, "/", "localhost")["strict-transport-security"]
  end

  it "covers static sites" do
    site = start(files: pair("own", "localhost").merge("index.html" => "page"), settings: { https_only: true }, workers: nil, threads: nil,
                 binds: ["tcp://127.0.0.1:0", "ssl://127.0.0.1:0?cert=own.pem&key=own.key"])
    assert_equal 308, location(site, "/", "localhost")[0]
    assert_equal "page", secure_get(site, "/", "localhost").body
  end
end
