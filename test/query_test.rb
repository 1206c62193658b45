# frozen_string_literal: true

# QUERY (RFC 10008): a safe and idempotent method with a body. It passes every version of HTTP, and files refuse it. The reverse
# proxy: proxy_forwarding_test.rb.

require "json"
require "support/case"
require "support/certificates"
require "support/http2_client"

class QueryTest < Case
  parallel!

  include Certificates

  APP = <<~'RUBY'
    require "json"
    require "rack/lint"
    app = lambda { |env|
      case env["PATH_INFO"]
      when "/405" then [405, { "content-type" => "text/plain", "allow" => "GET, QUERY", "accept-query" => '"application/sql", application/jsonpath' }, ["no"]]
      else
        said = [env["REQUEST_METHOD"], env["CONTENT_TYPE"], env["SERVER_PROTOCOL"], env["rack.input"]&.read]
        [200, { "content-type" => "application/json", "accept-query" => "application/sql", "content-location" => "/stored/1" }, [JSON.generate(said)]]
      end
    }
    use Rack::Lint
    run app
  RUBY

  def setup
    firebrick_only
  end

  def query(path, body, to:, headers: {})
    ask(request("QUERY", path, { "Content-Type" => "application/sql" }.merge(headers), body), to: to, method: "QUERY")
  end

  it "reaches the app with its body, over HTTP/1, in chunks, and over HTTP/2" do
    own = start(app: APP, binds: ["tcp://127.0.0.1:0?h2c=true"])
    response = query("/contacts", "select 1", to: own)
    assert_equal ["QUERY", "application/sql", "HTTP/1.1", "select 1"], JSON.parse(response.body)
    assert_equal ["application/sql", "/stored/1"], [response["accept-query"], response["content-location"]]
    response = query("/contacts", chunked("select", " 2"), to: own, headers: { "Transfer-Encoding" => "chunked" })
    assert_equal "select 2", JSON.parse(response.body).last
    large = "x" * 300_000
    assert_equal large, JSON.parse(query("/", large, to: own).body).last
    client = Http2Client.new(own.address).tap { |one| @connections << one }
    answer = client.get("/", method: "QUERY", headers: { "content-type" => "application/sql" }, body: "select 3")
    assert_equal ["QUERY", "application/sql", "HTTP/2", "select 3"], JSON.parse(answer.body)
    assert_equal '"application/sql", application/jsonpath', query("/405", "x", to: own)["accept-query"]
  end

  it "reaches the app over HTTP/3" do
    cert, key = certificate
    own = start(app: APP, files: { "own.pem" => cert.to_pem, "own.key" => key.to_pem }, binds: ["ssl://127.0.0.1:0?cert=own.pem&key=own.key"])
    words = ["https://127.0.0.1:#{own.port}/", "-k", "--http", "3", "-c", "1", "-n", "3", "-X", "QUERY", "--body", "select 4", "--content-type", "application/sql", "--expect-body", "QUERY.*select 4"]
    out, err, code = own.command_line("bench", *words)
    assert_equal 0, code, out + err
  end

  it "is refused by files, with the methods that they have" do
    site = start(files: { "index.html" => "x", "a.txt" => "a" }, workers: nil, threads: nil, environment: nil)
    response = query("/a.txt", "x", to: site)
    assert_equal [405, "GET, HEAD, OPTIONS"], [response.status, response["allow"]]
  end

  it "goes past the app's public files to the app" do
    own = start(app: APP, files: { "public/a.txt" => "a file" }, settings: { files: { public: "public" } })
    assert_equal "QUERY", JSON.parse(query("/a.txt", "x", to: own).body).first
  end

  it "keeps method and body where it is redirected" do
    own = start(app: APP, args: ["--canonical-host", "www.example.test"])
    response = query("/x?y=1", "select 1", to: own)
    assert_equal 308, response.status
    assert_match(%r{\Ahttp://www.example.test(:\d+)?/x\?y=1\z}, response["location"])
  end

  it "counts for rate limits by its name" do
    own = start(app: APP, settings: { rate_limits: { queries: { rate: "1/h", methods: ["QUERY"], key: "all" } } })
    assert_status 200, query("/", "x", to: own)
    assert_status 429, query("/", "x", to: own)
    assert_status 200, get("/", to: own)
  end
end
