# frozen_string_literal: true

# Where messages begin and end (RFC 9112), as seen on the wire: keep-alive, pipelining, chunked coding, HTTP/1.0,
# responses without bodies, Expect, the forms of a request target.

require "support/case"

class FramingTest < Case
  parallel!

  shared_server threads: "1:5", app: <<~'RUBY'
    require "json"

    class Pieces
      def initialize(*pieces) = @pieces = pieces
      def each(&block) = @pieces.each(&block)
    end

    text = { "content-type" => "text/plain" }
    run lambda { |env|
      path = env["PATH_INFO"]
      case path
      when "/echo"
        body = env["rack.input"] ? env["rack.input"].read : ""
        [200, text.merge("content-length" => body.bytesize.to_s), [body]]
      when "/ignore-body" then [200, text, ["ignored"]]
      when "/env"
        body = JSON.generate(env.select { |_, v| v.is_a?(String) }.to_h { |k, v| [k, v.b.unpack1("H*")] })
        [200, { "content-type" => "application/json" }, [body]]
      when "/each" then [200, text, Pieces.new("one", "", "two", "three")]
      when "/each-with-length" then [200, text.merge("content-length" => "6"), Pieces.new("one", "two")]
      when "/none" then [200, text, []]
      when "/status/204", "/status/304" then [path[-3..].to_i, { "x-a" => "b" }, []]
      when "/body-in-204" then [204, {}, ["must not be sent"]]
      when "/body-in-304" then [304, {}, ["must not be sent"]]
      when "/close" then [200, text.merge("connection" => "close"), ["bye"]]
      when "/date" then [200, text.merge("date" => "Tue, 15 Nov 1994 08:12:31 GMT"), ["old"]]
      when "/chunked-by-the-app"
        [200, text.merge("transfer-encoding" => "chunked"), Pieces.new("3\r\none\r\n", "3\r\ntwo\r\n", "0\r\n\r\n")]
      when "/much-chunked-by-the-app"
        [200, text.merge("transfer-encoding" => "chunked"), ["40000\r\n#{"x" * 0x40000}\r\n", "0\r\n\r\n"]]
      when "/obs-text" then [200, text.merge("x-latin" => "caf\xE9".b), ["ok"]]
      when "/slow" then sleep 0.3; [200, text, ["slow"]]
      when %r{\A/count/(\d+)\z} then [200, text, ["x" * $1.to_i]]
      else [200, text, ["#{env["REQUEST_METHOD"]} #{path}?#{env["QUERY_STRING"]}"]]
      end
    }
  RUBY

  def env_of(bytes)
    response = ask(bytes)
    assert_status 200, response
    response.json.transform_values { |hex| [hex].pack("H*") }
  end

  it "responds to HTTP/1.0 without chunked coding, and ends a body of unknown length by closing" do
    connection = connect
    connection.write("GET /each HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    response = connection.read_response
    assert_empty response.all("transfer-encoding")
    assert_equal "onetwothree", response.body
    if response.framing == :close
      refute_includes response.connection, "keep-alive"
      assert_closed connection
    end
  end

  # --- pipelining

  it "keeps the bodies of pipelined requests apart" do
    chunked_request = "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n#{chunked('two', 'three')}"
    connection = connect
    connection.write(request("POST", "/echo", {}, "one") + chunked_request + request("GET", "/x") +
                     request("POST", "/echo", {}, "GET / HTTP/1.1\r\n\r\n"))
    assert_equal "one", connection.read_response.body
    assert_equal "twothree", connection.read_response.body
    assert_equal "GET /x?", connection.read_response.body
    assert_equal "GET / HTTP/1.1\r\n\r\n", connection.read_response.body
    assert connection.silent?
  end

  it "continues after a body that the app did not read" do
    connection = connect
    body = "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n" * 100
    connection.write(request("POST", "/ignore-body", {}, body))
    assert_equal "ignored", connection.read_response.body
    assert_alive connection
    assert connection.silent?
  end

  it "reads the body of a GET" do
    connection = connect
    connection.write(request("GET", "/echo", {}, "in a GET") + request("GET", "/next"))
    assert_equal "in a GET", connection.read_response.body
    assert_equal "GET /next?", connection.read_response.body
  end

  it "treats a POST without length or coding as empty" do
    connection = connect
    connection.write("POST /echo HTTP/1.1\r\nHost: x\r\n\r\n" + request("GET", "/next"))
    assert_equal "", connection.read_response.body
    assert_equal "GET /next?", connection.read_response.body
  end

  # --- chunked requests

  it "keeps trailers out of the environment" do
    coded = "1\r\nx\r\n0\r\nX-Forwarded-For: 6.6.6.6\r\nAuthorization: Basic Zm9v\r\nContent-Length: 99\r\nHost: evil\r\n\r\n"
    env = env_of("POST /env HTTP/1.1\r\nHost: good\r\nTransfer-Encoding: chunked\r\n\r\n#{coded}")
    assert_equal "good", env["HTTP_HOST"]
    refute_includes env, "HTTP_X_FORWARDED_FOR"
    refute_includes env, "HTTP_AUTHORIZATION"
    assert_includes accepted("1", nil), env["CONTENT_LENGTH"]
  end

  # --- responses

  it "sends a body of known length with Content-Length" do
    response = get("/count/1000")
    assert_equal :length, response.framing
    assert_equal 1000, response.body.bytesize
    assert_equal "onetwo", get("/each-with-length").body
  end

  it "does not chunk a body again that the app has chunked" do
    connection = connect
    connection.write(request("GET", "/chunked-by-the-app"))
    assert_equal "onetwo", connection.read_response.body
    assert_alive connection
  end

  it "does not chunk a large Array again either" do
    connection = connect
    connection.write(request("GET", "/much-chunked-by-the-app"))
    assert_equal "x" * 0x40000, connection.read_response.body
    assert_alive connection
  end

  it "sends an empty body with Content-Length 0 or as empty chunked body" do
    connection = connect
    connection.write(request("GET", "/none"))
    assert_equal "", connection.read_response.body
    assert_alive connection
  end

  it "responds to HEAD with the fields of GET and no body" do
    connection = connect
    %w[/count/1000 /each /none /each-with-length].each do |path|
      connection.write(request("GET", path))
      full = connection.read_response("GET")
      connection.write(request("HEAD", path))
      head = connection.read_response("HEAD")
      assert_equal full.status, head.status
      lengths = head.all("content-length")
      assert_includes [[], full.all("content-length")], lengths, path
      assert connection.silent?(0.05), "no body after HEAD #{path}"
    end
    assert_alive connection
  end

  [204, 304].each do |status|
    it "sends #{status} without a body, even if the app gave one" do
      connection = connect
      ["/status/#{status}", "/body-in-#{status}"].each do |path|
        connection.write(request("GET", path))
        assert_status status, connection.read_response
        assert connection.silent?(0.05), "no body after #{path}"
      end
      assert_alive connection
    end
  end

  it "adds a Date in the format of RFC 9110" do
    assert_match(/\A(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT\z/, get("/")["date"])
  end

  it "leaves the app's own Date alone" do
    assert_equal "Tue, 15 Nov 1994 08:12:31 GMT", get("/date")["date"]
  end

  it "passes bytes above 127 in fields through, both ways" do
    env = env_of("GET /env HTTP/1.1\r\nHost: x\r\nX-Latin: caf\xE9 \xFF\r\n\r\n".b)
    assert_equal "caf\xE9 \xFF".b, env["HTTP_X_LATIN"]
    assert_equal "caf\xE9".b, get("/obs-text")["x-latin"].b
  end

  # --- Expect

  it "reads Expect without regard to case, and with chunked bodies" do
    connection = connect
    connection.write("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nExpect: 100-Continue\r\n\r\n")
    assert_equal 100, connection.read_head.status
    connection.write(chunked("hello"))
    assert_equal "hello", connection.read_response.body
  end

  # --- the request line

  it "reads a target in absolute form, whose host wins" do
    env = env_of("GET http://example.test:8080/env?x=1 HTTP/1.1\r\nHost: example.test:8080\r\n\r\n")
    assert_equal "/env", env["PATH_INFO"]
    assert_equal "x=1", env["QUERY_STRING"]
    assert_equal "example.test:8080", env["HTTP_HOST"]

    env = env_of("GET http://right.test/env HTTP/1.1\r\nHost: wrong.test\r\n\r\n")
    assert_equal "right.test", env["HTTP_HOST"]
    assert_equal "right.test", env["SERVER_NAME"]
  end

  it "treats an absolute form without a path as /" do
    assert_equal "GET /?", ask("GET http://example.test HTTP/1.1\r\nHost: example.test\r\n\r\n").body
    assert_equal "GET /?a", ask("GET http://example.test?a HTTP/1.1\r\nHost: example.test\r\n\r\n").body
  end

  it "responds to OPTIONS *" do
    connection = connect
    connection.write("OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n")
    assert_status accepted(200, 204), connection.read_response("OPTIONS")
    assert_alive connection
  end

  it "refuses CONNECT" do
    connection = connect
    connection.write("CONNECT example.test:443 HTTP/1.1\r\nHost: example.test:443\r\n\r\n" + request("GET", "/smuggled"))
    assert_status accepted(501, 400, 405), connection.read_response("GET")
    assert_closed connection
  end

  it "passes other methods to the app" do
    %w[PUT PATCH DELETE OPTIONS PROPFIND M-SEARCH].each do |method|
      assert_equal "#{method} /x?", ask("#{method} /x HTTP/1.1\r\nHost: x\r\n\r\n").body
    end
  end

  it "accepts long targets" do
    path = "/#{'a' * 3000}"
    query = "b" * 3000
    assert_equal "GET #{path}?#{query}", get("#{path}?#{query}").body
  end

  it "passes percent-encoding and an empty query on unchanged" do
    assert_equal "GET /a%2Fb%20c?d=%26", get("/a%2Fb%20c?d=%26").body
    assert_equal "GET /a?", get("/a?").body
    assert_equal "GET /a?b?c", get("/a?b?c").body
    assert_equal "GET //double//slash?", get("//double//slash").body
  end

  it "ignores an upgrade to a protocol that it does not support" do
    connection = connect
    connection.write(request("GET", "/x", "Connection" => "Upgrade, HTTP2-Settings", "Upgrade" => "h2c", "HTTP2-Settings" => "AAMAAABkAAQAAP__"))
    assert_status 200, connection.read_response
    assert_alive connection
  end
end
