# frozen_string_literal: true

# Content codings of static files (RFC 9110, 8.4 and 12.5.3): compression and precompressed side-cars.

require "support/site_files_case"

class SiteFilesCodingsTest < SiteFilesCase
  it "compresses text for clients that accept gzip" do
    response = coded("/script.js", "gzip")
    assert_status 200, response
    assert_equal "gzip", response["content-encoding"]
    assert_equal SCRIPT, Codings.decode(response)
    assert_operator response.body.bytesize, :<, SCRIPT.bytesize / 2
  end

  # The first coding is Firebrick's choice; other servers may choose another of the list.
  { "gzip, deflate, br" => %w[br gzip], "gzip;q=0.5" => %w[gzip], "GZIP" => ["gzip", nil], "*" => ["br", "gzip", "zstd", nil], "deflate, gzip;q=1.0, *;q=0.5" => %w[gzip br zstd], "br;q=0, gzip" => %w[gzip],
    "gzip ; q=0.8" => ["gzip", nil], "identity;q=0.5, gzip;q=1" => %w[gzip], "br" => ["br", nil], "zstd" => ["zstd", nil], "gzip;q=0" => [nil], "gzip;q=0.000" => [nil], "identity" => [nil], "" => [nil],
    "*;q=0" => [nil, :refused], "gzipped" => [nil], "xgzip, gzip2" => [nil], "compress" => [nil], "deflate" => [nil], ";;;,,q=,gzip;q=x" => [nil, "gzip"], "identity;q=0, gzip" => %w[gzip],
    "gzip;q=0, *" => ["br", "zstd", nil] }.each do |accept, codings|
    it "negotiates Accept-Encoding: #{accept}" do
      response = coded("/script.js", accept)
      return assert_includes(accepted(*codings), :refused) if response.status == 406

      assert_status 200, response
      assert_includes accepted(*codings), response["content-encoding"]
      assert_equal SCRIPT, Codings.decode(response)
    end
  end

  it "sends Vary where it may compress, compressed or not" do
    [nil, "gzip", "identity", "br"].each do |accept|
      response = get("/script.js", headers: accept ? { "Accept-Encoding" => accept } : {})
      assert_equal ["accept-encoding"], response.all("vary").flat_map { |value| value.downcase.split(/, */) }, accept.inspect
    end
  end

  it "sends a separate validator for the compressed form" do
    plain = get("/script.js")
    packed = coded("/script.js", "gzip")
    assert(packed["etag"].nil? || packed["etag"].start_with?("W/") || packed["etag"] != plain["etag"], packed.raw_head)
  end

  it "responds with 304 to a client that has the compressed form" do
    packed = coded("/script.js", "gzip")
    tag = packed["etag"]
    headers = { "Accept-Encoding" => "gzip" }.merge(tag ? { "If-None-Match" => tag } : { "If-Modified-Since" => packed["last-modified"] })
    assert_status 304, get("/script.js", headers: headers)
  end

  it "never mixes the ranges of two representations" do
    response = get("/script.js", headers: { "Accept-Encoding" => "gzip", "Range" => "bytes=0-99" })
    assert_status accepted(206, 200), response
    packed = coded("/script.js", "gzip").body
    return assert_equal(SCRIPT, Codings.decode(response)) if response.status == 200
    return assert_equal(packed[0, 100], response.body) if response["content-encoding"]

    assert_equal [SCRIPT[0, 100], "bytes 0-99/#{SCRIPT.bytesize}"], [response.body, response["content-range"]]
  end

  it "does not resume the plain form with the compressed form's tag" do
    tag = coded("/script.js", "gzip")["etag"] or return
    response = get("/script.js", headers: { "If-Range" => tag, "Range" => "bytes=10-" })
    assert_status 200, response
  end

  it "does not compress small files" do
    response = coded("/small.css", "gzip, br, zstd")
    assert_nil response["content-encoding"]
    assert_equal "a{color:red}", response.body
  end

  it "does not compress compressed types" do
    %w[/pixels.png /font.woff2 /archive.tar.gz /large.bin].each { |path| assert_nil coded(path, "gzip, br, zstd")["content-encoding"], path }
  end

  it "compresses for HTTP/1.0 without chunks, or not at all" do
    connection = connect
    connection.write("GET /script.js HTTP/1.0\r\nAccept-Encoding: gzip\r\n\r\n")
    assert_equal SCRIPT, Codings.decode(connection.read_response)
  end

  it "keeps a connection usable after compressed responses" do
    connection = connect
    connection.write([request("GET", "/script.js", "Accept-Encoding" => "gzip"), request("HEAD", "/script.js", "Accept-Encoding" => "gzip"), request("GET", "/text.txt")].join)
    assert_equal SCRIPT, Codings.decode(connection.read_response)
    connection.read_response("HEAD")
    assert_equal TEXT, connection.read_response.body
  end

  it "sends a side-car instead of compressing" do
    response = coded("/side.css", "gzip")
    assert_equal "gzip", response["content-encoding"]
    assert_equal "from the gzip side-car", Codings.decode(response)
    assert_match(%r{\Atext/css}, response["content-type"])
    assert_match(/accept-encoding/i, response["vary"])
  end

  it "does not send a side-car to clients that do not accept its coding" do
    [nil, "identity", "gzip;q=0", "deflate"].each do |accept|
      response = get("/side.css", headers: accept ? { "Accept-Encoding" => accept } : {})
      assert_equal PAGES["side.css"], response.body, accept.inspect
      assert_nil response["content-encoding"]
    end
  end

  it "supports conditions and HEAD for a side-car" do
    full = coded("/side.css", "gzip")
    assert_status 304, get("/side.css", headers: { "Accept-Encoding" => "gzip", "If-None-Match" => full["etag"] })
    assert_equal full["content-length"], head("/side.css", headers: { "Accept-Encoding" => "gzip" })["content-length"]
    refute_equal full["etag"], get("/side.css")["etag"]
  end

  it "serves a range of a side-car's bytes" do
    full = coded("/side.css", "gzip")
    part = get("/side.css", headers: { "Accept-Encoding" => "gzip", "Range" => "bytes=0-9" })
    assert_status accepted(206, 200), part
    return assert_equal(full.body, part.body) if part.status == 200

    expected = part["content-encoding"] ? full.body[0, 10] : PAGES["side.css"][0, 10]
    assert_equal expected, part.body
  end

  it "sends a side-car requested by its name as a file" do
    response = get("/side.css.gz", headers: { "Accept-Encoding" => "gzip" })
    assert_nil response["content-encoding"]
    assert_equal "from the gzip side-car", Codings.gunzip(response.body)
  end
end
