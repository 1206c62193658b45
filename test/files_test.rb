# frozen_string_literal: true

# Files below public/ are served without Ruby, and only those.

require "support/case"
require "time"

class FilesTest < Case
  parallel!

  TEXT = "0123456789" * 100
  LARGE = Random.new(3).bytes(3_000_000)

  APP = <<~'RUBY'
    run ->(env) { [200, { "content-type" => "text/plain" }, ["app #{env['REQUEST_METHOD']} #{env['PATH_INFO']}"]] }
  RUBY

  shared_server threads: "1:5", app: APP, settings: { files: { public: "always" } }, files: {
    "public/page.html" => "<p>page", "public/style.css" => "a{}", "public/code.js" => "1", "public/data.json" => "{}", "public/image.svg" => "<svg/>",
    "public/image.png" => "\x89PNG", "public/font.woff2" => "wOF2", "public/text.txt" => TEXT, "public/empty.txt" => "", "public/large.bin" => LARGE,
    "public/no-extension" => "?", "public/dir/inside.txt" => "inside", "public/with space.txt" => "space", "public/caf\u00e9.txt" => "umlaut",
    "public/.hidden" => "hidden", "public/.git/config" => "secret", "secret.txt" => "outside", "public/post" => "a file", "public/plus+.txt" => "plus"
  }

  def setup
    firebrick_only
  end

  it "responds to GET with the file, its length, type, ETag and date" do
    response = get("/text.txt")
    assert_status 200, response
    assert_equal TEXT, response.body
    assert_equal TEXT.bytesize.to_s, response["content-length"]
    assert_match(%r{\A(W/)?"[^"]+"\z}, response["etag"])
    modified = Time.httpdate(response["last-modified"])
    assert_equal File.mtime(server.path("public/text.txt")).to_i, modified.to_i
    assert_equal "bytes", response["accept-ranges"]
  end

  it "responds to HEAD with the same fields and no body" do
    connection = connect
    connection.write(request("HEAD", "/text.txt"))
    response = connection.read_response("HEAD")
    assert_equal TEXT.bytesize.to_s, response["content-length"]
    assert response["etag"]
    assert_alive connection
  end

  { "page.html" => %r{\Atext/html}, "style.css" => %r{\Atext/css}, "code.js" => %r{\A(text|application)/javascript}, "data.json" => %r{\Aapplication/json},
    "image.svg" => %r{\Aimage/svg\+xml}, "image.png" => %r{\Aimage/png}, "font.woff2" => %r{\Afont/woff2}, "text.txt" => %r{\Atext/plain} }.each do |file, type|
    it "knows the type of #{file}" do
      assert_match type, get("/#{file}")["content-type"]
    end
  end

  it "serves files without extension, empty files, large files, and names that need escapes" do
    assert_equal "?", get("/no-extension").body
    assert_equal "0", get("/empty.txt")["content-length"]
    assert_equal Digest::SHA256.hexdigest(LARGE), Digest::SHA256.hexdigest(get("/large.bin").body)
    assert_equal "inside", get("/dir/inside.txt").body
    assert_equal "space", get("/with%20space.txt").body
    assert_equal "umlaut", get("/caf%C3%A9.txt").body
    assert_equal "plus", get("/plus+.txt").body
    assert_equal "0123456789", get("/text.txt?v=2", headers: { "Range" => "bytes=0-9" }).body
  end

  it "responds with 304 to a client that has the file" do
    first = get("/text.txt")
    connection = connect
    [{ "If-None-Match" => first["etag"] }, { "If-None-Match" => "\"other\", #{first['etag']}" }, { "If-None-Match" => "*" }, { "If-Modified-Since" => first["last-modified"] }].each do |headers|
      connection.write(request("GET", "/text.txt", headers))
      response = connection.read_response
      assert_status 304, response, headers.inspect
      assert_equal first["etag"], response["etag"]
    end
    assert_alive connection
  end

  it "responds with 200 to a client that has another version" do
    first = get("/text.txt")
    [{ "If-None-Match" => '"other"' }, { "If-Modified-Since" => "Thu, 01 Jan 1970 00:00:00 GMT" }, { "If-Modified-Since" => "nonsense" },
     { "If-None-Match" => '"other"', "If-Modified-Since" => first["last-modified"] }].each do |headers|
      assert_status 200, get("/text.txt", headers: headers), headers.inspect
    end
  end

  { "bytes=0-9" => [0, 9], "bytes=10-19" => [10, 19], "bytes=990-" => [990, 999], "bytes=-10" => [990, 999], "bytes=995-2000" => [995, 999],
    "bytes=0-0" => [0, 0], "bytes=-2000" => [0, 999] }.each do |range, (first, last)|
    it "serves the range #{range}" do
      response = get("/text.txt", headers: { "Range" => range })
      assert_status 206, response
      assert_equal TEXT[first..last], response.body
      assert_equal "bytes #{first}-#{last}/1000", response["content-range"]
    end
  end

  it "responds with 416 to a range outside the file" do
    ["bytes=1000-", "bytes=5000-6000", "bytes=-0"].each do |range|
      response = get("/text.txt", headers: { "Range" => range })
      assert_status 416, response, range
      assert_equal "bytes */1000", response["content-range"]
    end
  end

  it "serves the whole file for an invalid range" do
    ["bytes=abc", "lines=0-9", "bytes=9-0", "bytes=", "bytes=0-9x"].each do |range|
      response = get("/text.txt", headers: { "Range" => range })
      assert_status 200, response, range
      assert_equal TEXT, response.body, range
    end
  end

  it "serves a range only while If-Range matches" do
    etag = get("/text.txt")["etag"]
    assert_status(etag.start_with?("W/") ? 200 : 206, get("/text.txt", headers: { "Range" => "bytes=0-9", "If-Range" => etag }))
    assert_status 200, get("/text.txt", headers: { "Range" => "bytes=0-9", "If-Range" => '"other"' })
  end

  it "leaves methods other than GET and HEAD to the app" do
    %w[POST PUT DELETE OPTIONS PATCH].each { |method| assert_equal "app #{method} /post", ask(request(method, "/post", {}, "")).body }
  end

  it "leaves paths without a file to the app" do
    ["/missing.txt", "/", "/dir", "/dir/", "/text.txt/", "/text.txt/more"].each { |path| assert_equal "app GET #{path}", get(path).body }
  end

  ["/../secret.txt", "/%2e%2e/secret.txt", "/..%2fsecret.txt", "/dir/../../secret.txt", "/dir/%2e%2e/%2e%2e/secret.txt", "/..%5csecret.txt",
   "/....//secret.txt", "//../secret.txt", "/%2e%2e%2fsecret.txt", "/./../secret.txt", "/%252e%252e/secret.txt", "/dir/..%00/secret.txt"].each do |path|
    it "does not serve files outside public/ for #{path}" do
      refute_includes get(path).body, "outside"
    end
  end

  it "does not serve dot files" do
    ["/.hidden", "/%2ehidden", "/.git/config", "/dir/../.hidden"].each do |path|
      refute_match(/\A(hidden|secret)\z/, get(path).body, path)
    end
  end

  it "follows links out of public/, as the app would: what releases share is linked there" do
    shared = %w[shared/app.css shared public/link.log public/assets].map { |name| server.path(name) }
    FileUtils.mkdir_p(server.path("shared"))
    File.write(server.path("shared/app.css"), "a{}")
    File.symlink(server.path("secret.txt"), server.path("public/link.log"))
    File.symlink(server.path("shared"), server.path("public/assets"))
    assert_equal "outside", get("/link.log").body
    assert_equal "a{}", get("/assets/app.css").body
  ensure
    FileUtils.rm_rf(shared)
  end

  it "does not truncate a name at a NUL" do
    refute_equal TEXT, get("/text.txt%00.html").body
  end

  it "notices that a file changes" do
    path = server.path("public/changing.log")
    File.write(path, "first")
    first = get("/changing.log")
    File.write(path, "second!")
    second = get("/changing.log", headers: { "If-None-Match" => first["etag"] })
    assert_equal "second!", second.body
    refute_equal first["etag"], second["etag"]
    File.delete(path)
    assert_match(/\Aapp/, get("/changing.log").body)
  end

  it "serves many files on one connection, pipelined between requests to the app" do
    connection = connect
    connection.write((1..50).map { |i| request("GET", i.odd? ? "/text.txt" : "/app#{i}") }.join)
    (1..50).each { |i| assert_equal i.odd? ? TEXT : "app GET /app#{i}", connection.read_response.body }
  end

  it "does not involve Ruby" do
    own = start(threads: "1:1", settings: { files: { public: "always" } }, files: { "public/a.txt" => "file" }, app: 'run ->(_) { sleep 0.01 until File.exist?("gate.log"); [200, {}, ["app"]] }')
    holder = connect(own).write(request("GET", "/app"))
    assert_equal "file", get("/a.txt", to: own).body
    File.write(own.path("gate.log"), "")
    assert_equal "app", holder.read_response.body
  end

  it "leaves everything to the app with serve_public off, and serves another directory when configured" do
    files = { "public/a.txt" => "public", "assets/a.txt" => "assets" }
    app = 'run ->(_) { [200, {}, ["app"]] }'
    assert_equal "app", get("/a.txt", to: start(app: app, files: files, settings: { files: { serve_public: false } })).body
    assert_equal "assets", get("/a.txt", to: start(app: app, files: files, settings: { files: { public: "assets" } })).body
  end
end
