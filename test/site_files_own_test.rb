# frozen_string_literal: true

# Firebrick's guarantees for static files beyond the standards.

require "support/site_files_case"

class SiteFilesOwnTest < SiteFilesCase
  def setup
    firebrick_only
  end

  it "responds to OPTIONS with 204 and Allow" do
    response = options("/text.txt")
    assert_status 204, response
    assert_equal "GET, HEAD, OPTIONS", response["allow"]
  end

  it "sends Allow with each 405" do
    %w[POST PUT DELETE PATCH].each do |method|
      response = ask(request(method, "/text.txt", {}, "x"))
      assert_status 405, response
      assert_equal "GET, HEAD, OPTIONS", response["allow"]
    end
  end

  it "weakens the ETag when it compresses" do
    tag = get("/script.js")["etag"]
    refute tag.start_with?("W/")
    packed = coded("/script.js", "gzip")["etag"]
    assert packed.start_with?("W/"), packed
    assert_status 304, get("/script.js", headers: { "Accept-Encoding" => "gzip", "If-None-Match" => packed })
  end

  it "sends a length for a compressed file from the second response on" do
    coded("/script.js", "gzip")
    response = coded("/script.js", "gzip")
    assert_equal :length, response.framing
  end

  { "br, gzip, zstd" => "br", "gzip, zstd" => "zstd", "gzip" => "gzip", "gzip, br;q=0.5" => "gzip", "zstd;q=0.9, br;q=0.8, gzip;q=0.7" => "zstd", "*" => "br", "br;q=0, *" => "zstd", "gzip;q=0.5, *;q=0.1" => "gzip",
    "identity, br;q=0.1" => nil, "x-gzip" => "gzip" }.each do |accept, coding|
    it "chooses #{coding || 'nothing'} for #{accept}" do
      skip "no #{coding}" unless Codings.installed?(coding)

      response = coded("/script.js", accept)
      choice = response["content-encoding"]&.delete_prefix("x-")
      coding ? assert_equal(coding, choice) : assert_nil(choice)
      assert_equal SCRIPT, Codings.decode(response)
      side = coded("/three.css", accept)
      assert_equal coding ? "from the #{coding} side-car" : PAGES["three.css"], Codings.decode(side)
    end
  end

  it "reads several Accept-Encoding fields as one" do
    response = ask("GET /script.js HTTP/1.1\r\nHost: x\r\nAccept-Encoding: identity;q=0.5\r\nAccept-Encoding: gzip\r\n\r\n")
    assert_equal "gzip", response["content-encoding"]
  end

  it "prefers an existing side-car to compression, in the client's order" do
    assert_equal "from the br side-car", Codings.decode(coded("/brotli.css", "br, gzip"))
    packed = coded("/brotli.css", "gzip")
    assert_equal "gzip", packed["content-encoding"]
    assert_equal PAGES["brotli.css"], Codings.decode(packed)
  end

  it "sends separate strong validators for side-cars" do
    tags = %w[br zstd gzip identity].map { |coding| coded("/three.css", coding)["etag"] }
    assert_equal 4, tags.uniq.size, tags.inspect
  end

  it "does not send a side-car through a link that leaves the root" do
    File.symlink("../secret.txt", server.path("public_html/linked.css.gz"))
    File.write(server.path("public_html/linked.css"), "a{}")
    refute_includes coded("/linked.css", "gzip").body, "outside"
  end

  { "app.webmanifest" => "application/manifest+json", "module.mjs" => "text/javascript", "code.js" => "text/javascript", "data.json" => "application/json", "image.png" => "image/png" }.each do |file, type|
    it "sends #{type} for #{file}" do
      assert_equal type, get("/#{file}")["content-type"].sub(/; ?charset=utf-8\z/i, "")
    end
  end

  it "sends no charset for types without one" do
    %w[/image.png /font.woff2 /code.wasm /large.bin /data.json].each { |path| refute_match(/charset/, get(path)["content-type"], path) }
  end

  it "follows links inside the root" do
    assert_equal TEXT, get("/inside-link.txt").body
  end

  it "merges double slashes and resolves dots" do
    ["//text.txt", "/dir//../text.txt", "/./text.txt", "/dir/%2e%2e/text.txt"].each { |path| assert_equal TEXT, get(path).body, path }
  end

  { "/%00" => 400, "/%zz" => 400, "/text.txt%" => 400, "/%FF" => 400, "/../x" => 400, "/dir%2Finside.txt" => 404, "/.hidden" => 404, "/socket.txt" => 404, "/loop.txt" => 404, "/out.txt" => 404,
    "/noindex/" => 404, "/#{'n' * 300}" => 404 }.each do |path, status|
    it "responds with #{status} to #{path[0, 30]}" do
      assert_status status, get(path)
    end
  end

  it "sends several ranges as parts, and merges those that touch" do
    response = get("/text.txt", headers: { "Range" => "bytes=0-9,5-14,100-109" })
    assert_status 206, response
    assert_equal [[0, 14], [100, 109]], (ByteRanges.parts(response).map { |part| [part.from, part.to] })
  end

  it "does not show its own paths in errors" do
    %w[/missing /%00 /.hidden /out.txt /socket.txt].each { |path| refute_includes get(path).body, server.base }
  end
end
