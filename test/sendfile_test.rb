# frozen_string_literal: true

# X-Sendfile: the app names a file, the server sends it. Request fields that a proxy would use to announce X-Sendfile are removed.

require "support/case"
require "time"

SENDFILE_APP = <<~'RUBY'
  require "rack"
  file = ->(name) { File.expand_path(name) }

  app = lambda { |env|
    fields = { "content-type" => "text/plain", "content-length" => "0", "X-Sendfile" => file[env["PATH_INFO"].delete_prefix("/")] }
    case env["PATH_INFO"]
    when "/teapot" then [418, { "x-sendfile" => file["small.txt"] }, ["not this"]]
    when "/tagged" then [200, fields.merge("x-sendfile" => file["large.bin"], "etag" => '"v1"').except("X-Sendfile"), []]
    when "/folder" then [200, { "x-sendfile" => Dir.pwd }, []]
    when "/nowhere" then [200, { "x-sendfile" => "" }, []]
    when "/closed"
      body = []
      body.define_singleton_method(:close) { puts("body closed") }
      [200, { "X-SENDFILE" => file["small.txt"] }, body]
    when "/type" then [200, {}, [[env["HTTP_X_SENDFILE_TYPE"], env["HTTP_X_ACCEL_MAPPING"]].inspect]]
    else [200, fields, ["not this"]]
    end
  }
  run app
RUBY

class SendfileTest < Case
  in_turn!

  LARGE = ("0123456789" * 100_000).freeze
  FILES = { "small.txt" => "a small file", "large.bin" => LARGE, "empty.txt" => "" }.freeze

  shared_server threads: "1:1", app: SENDFILE_APP, files: FILES

  it "sends the file in the place of the body, with the app's fields and the file's length" do
    FILES.each do |name, expected|
      response = get("/#{name}")
      assert_status 200, response
      assert_equal expected, response.body
      assert_equal [expected.bytesize.to_s, "text/plain"], [response["content-length"], response["content-type"]]
      assert_nil response["x-sendfile"], "the path is nobody's business"
      assert response["last-modified"]
    end
  end

  it "answers ranges" do
    response = get("/large.bin", headers: { "Range" => "bytes=5-14" })
    assert_status 206, response
    assert_equal ["5678901234", "bytes 5-14/1000000", "10"], [response.body, response["content-range"], response["content-length"]]
    assert_equal "89", get("/large.bin", headers: { "Range" => "bytes=-2" }).body
    parts = get("/large.bin", headers: { "Range" => "bytes=0-1,10-11" })
    assert_match(%r{\Amultipart/byteranges; boundary=}, parts["content-type"])
    assert_match(%r{Content-Range: bytes 10-11/1000000}i, parts.body)
    refused = get("/large.bin", headers: { "Range" => "bytes=2000000-" })
    assert_status 416, refused
    assert_equal "bytes */1000000", refused["content-range"]
  end

  it "sends all of it to a client that has parts of another version" do
    range = { "Range" => "bytes=0-1" }
    assert_status 206, get("/tagged", headers: range.merge("If-Range" => '"v1"'))
    assert_status 200, get("/tagged", headers: range.merge("If-Range" => '"v0"'))
    modified = get("/large.bin")["last-modified"]
    assert_status 206, get("/large.bin", headers: range.merge("If-Range" => modified))
    assert_status 200, get("/large.bin", headers: range.merge("If-Range" => (Time.httpdate(modified) - 1).httpdate))
  end

  it "sends nothing that has not changed, and no body to HEAD" do
    modified = get("/small.txt")["last-modified"]
    response = get("/small.txt", headers: { "If-Modified-Since" => modified })
    assert_status 304, response
    assert_empty response.body
    head = ask(request("HEAD", "/small.txt"))
    assert_status 200, head
    assert_equal ["12", ""], [head["content-length"], head.body.to_s]
  end

  it "keeps a status of the app's own, and closes the body" do
    response = get("/teapot")
    assert_status 418, response
    assert_equal "a small file", response.body
    assert_equal "a small file", get("/closed").body
    assert(wait_until { server.stdout.include?("body closed") })
  end

  it "says in the log why a file cannot be sent" do
    { "/missing.txt" => /BadResponse: X-Sendfile: .*No such file or directory.*missing\.txt/, "/folder" => /X-Sendfile: .* is no regular file/,
      "/nowhere" => /X-Sendfile: no path/ }.each do |path, said|
      assert_status 500, get(path)
      assert_logged(said, on: server)
    end
  end

  it "believes only trusted proxies that they send files" do
    fields = { "X-Sendfile-Type" => "X-Accel-Redirect", "X-Accel-Mapping" => "/=/x/" }
    assert_equal '["X-Accel-Redirect", "/=/x/"]', get("/type", headers: fields).body
    stranger = start(app: SENDFILE_APP, args: ["--trusted-proxies", "none"])
    assert_equal "[nil, nil]", get("/type", to: stranger, headers: fields).body
  end
end
