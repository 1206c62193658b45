# frozen_string_literal: true

# Static files: the response as a whole, methods, missing files.

require "support/site_files_case"

class SiteFilesTest < SiteFilesCase
  # --- the whole response

  it "responds to GET with exactly the file" do
    response = get("/text.txt")
    assert_status 200, response
    assert_equal TEXT, response.body
    assert_equal :length, response.framing
  end

  it "sends a strong ETag in quotes" do
    assert_match(/\A"[\x21\x23-\x7e]+"\z/, get("/text.txt")["etag"])
  end

  it "sends the modification time as Last-Modified" do
    assert_equal "Sat, 29 Feb 2020 12:34:56 GMT", get("/text.txt")["last-modified"]
  end

  it "sends the same validators each time" do
    assert_equal validators, validators
  end

  it "sends different ETags for different files" do
    assert_equal 4, %w[/text.txt /data.json /page.html /large.bin].map { |path| get(path)["etag"] }.uniq.size
  end

  it "sends a Date" do
    assert_in_delta Time.now.to_i, Time.httpdate(get("/text.txt")["date"]).to_i, 60
  end

  it "sends Accept-Ranges" do
    assert_equal "bytes", get("/text.txt")["accept-ranges"]
  end

  it "serves an empty file" do
    response = get("/empty.txt")
    assert_status 200, response
    assert_equal ["0", ""], [response["content-length"], response.body]
  end

  it "serves a large file byte for byte" do
    assert_equal Digest::SHA256.hexdigest(LARGE), Digest::SHA256.hexdigest(get("/large.bin").body)
  end

  it "ignores the query" do
    ["/text.txt?", "/text.txt?v=2", "/text.txt?a=/../../x", "/text.txt?%00", "/text.txt??"].each { |path| assert_equal TEXT, get(path).body, path }
  end

  it "reads a target in absolute form" do
    assert_equal TEXT, ask("GET http://example.test/text.txt HTTP/1.1\r\nHost: example.test\r\n\r\n").body
  end

  it "responds to HTTP/1.0" do
    connection = connect
    connection.write("GET /text.txt HTTP/1.0\r\n\r\n")
    assert_equal TEXT, connection.read_response.body
    assert_closed connection
  end

  it "closes after the file with Connection: close" do
    connection = connect
    connection.write(request("GET", "/large.bin", "Connection" => "close"))
    response = connection.read_response
    assert_equal LARGE.bytesize, response.body.bytesize
    assert_includes response.connection, "close"
    assert_closed connection
  end

  # --- methods

  ["/text.txt", "/empty.txt", "/large.bin", "/", "/dir/", "/script.js"].each do |path|
    it "responds to HEAD #{path} with the fields of GET and no body" do
      connection = connect
      full = get(path)
      connection.write(request("HEAD", path))
      empty = connection.read_response("HEAD")
      assert_equal 200, empty.status
      %w[content-length content-type etag last-modified accept-ranges vary].each { |name| assert_equal full.all(name), empty.all(name), name }
      assert connection.silent?(0.05), "no body after HEAD"
      assert_alive connection, "/text.txt"
    end
  end

  it "responds to HEAD of a compressed file with the fields of its GET" do
    headers = { "Accept-Encoding" => "gzip" }
    full = get("/script.js", headers: headers)
    empty = head("/script.js", headers: headers)
    %w[content-encoding etag vary content-type].each { |name| assert_equal full.all(name), empty.all(name), name }
    assert_includes accepted([full.all("content-length")], []), empty.all("content-length")
  end

  it "responds to HEAD of a missing file without a body" do
    connection = connect
    connection.write(request("HEAD", "/missing"))
    assert_status 404, connection.read_response("HEAD")
    assert connection.silent?(0.05)
    assert_alive connection, "/text.txt"
  end

  it "responds to HEAD of a directory without its slash with the redirect" do
    assert_redirect "/dir/", head("/dir")
  end

  it "responds to OPTIONS with the allowed methods, or refuses it" do
    response = options("/text.txt")
    assert_status accepted(204, 200, 405), response
    assert_match(/\bGET\b.*\bHEAD\b/, response["allow"]) unless response.status == 405
    refute_includes response.body, TEXT
  end

  %w[POST PUT DELETE PATCH].each do |method|
    it "refuses #{method} of a file and does not change it" do
      connection = connect
      connection.write(request(method, "/text.txt", {}, "new content"))
      assert_status 405, connection.read_response(method)
      assert_equal TEXT, get("/text.txt").body
      assert_equal TEXT, File.binread(root("text.txt"))
    end
  end

  it "lists the allowed methods when it refuses one" do
    assert_match(/\AGET, HEAD\b/, ask(request("POST", "/text.txt", {}, "x"))["allow"])
  end

  it "refuses unknown methods" do
    %w[FROBNICATE PROPFIND MKCOL].each { |method| assert_status accepted(405, 400, 501), ask(request(method, "/text.txt")), method }
  end

  it "refuses TRACE and does not echo it" do
    response = ask(request("TRACE", "/text.txt", "X-Cookie" => "secret"))
    assert_status accepted(405, 400, 501), response
    refute_includes response.body, "secret"
  end

  it "does not read the body of a refused POST as a request" do
    connection = connect
    connection.write(request("POST", "/text.txt", {}, request("GET", "/page.html")) + request("GET", "/dir/inside.txt"))
    assert_status 405, connection.read_response("POST")
    following = whole_or_nil { connection.read_response }
    refute_includes following.body, "<p>page" if following
  end

  # --- missing files

  it "responds to missing files with the error page and 404" do
    response = get("/missing")
    assert_status 404, response
    assert_equal MISSING_PAGE, response.body
    assert_match(%r{\Atext/html}, response["content-type"])
  end

  it "sends the whole error page whatever the request's conditions and ranges" do
    [{ "Range" => "bytes=0-3" }, { "If-None-Match" => "*" }, { "If-Modified-Since" => Time.now.httpdate }].each do |headers|
      response = get("/missing", headers: headers)
      assert_status 404, response, headers.inspect
      assert_equal MISSING_PAGE, response.body, headers.inspect
    end
  end

  it "refuses other methods for missing files" do
    assert_status accepted(404, 405), ask(request("POST", "/missing", {}, "x"))
  end
end
