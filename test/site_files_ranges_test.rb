# frozen_string_literal: true

# Ranges of static files (RFC 9110, 14).

require "support/site_files_case"

class SiteFilesRangesTest < SiteFilesCase
  { "bytes=0-9" => [0, 9], "bytes=10-19" => [10, 19], "bytes=0-0" => [0, 0], "bytes=990-" => [990, 999], "bytes=0-" => [0, 999], "bytes=999-" => [999, 999], "bytes=-10" => [990, 999],
    "bytes=-1" => [999, 999], "bytes=-1000" => [0, 999], "bytes=-2000" => [0, 999], "bytes=995-2000" => [995, 999], "bytes=0-999" => [0, 999], "bytes=007-0009" => [7, 9],
    "bytes=0-9999999999" => [0, 999] }.each do |range, (first, last)|
    it "serves the range #{range}" do
      response = get("/text.txt", headers: { "Range" => range })
      assert_status 206, response
      assert_equal TEXT[first..last], response.body
      assert_equal "bytes #{first}-#{last}/1000", response["content-range"]
      assert_equal (last - first + 1).to_s, response["content-length"]
    end
  end

  it "accepts the range unit in any case, or ignores it" do
    response = get("/text.txt", headers: { "Range" => "Bytes=0-9" })
    assert_status accepted(206, 200), response
    assert_equal response.status == 206 ? TEXT[0, 10] : TEXT, response.body
  end

  ["bytes=1000-", "bytes=5000-6000", "bytes=9999999999-", "bytes=-0"].each do |range|
    it "responds with 416 to #{range} and stays open" do
      connection = connect
      connection.write(request("GET", "/text.txt", "Range" => range))
      response = connection.read_response
      assert_status 416, response
      assert_equal "bytes */1000", response["content-range"]
      refute_includes response.body, TEXT
      assert_alive connection, "/text.txt"
    end
  end

  ["bytes=abc", "lines=0-9", "bytes=9-0", "bytes=", "bytes=0-9x", "bytes=-", "bytes=--5", "bytes 0-9", "bytes=0x0-0x9", "0-9", "bytes=0-9;10-19", "bytes=+0-+9"].each do |range|
    it "responds with the whole file, or 416, to the range #{range.inspect}" do
      response = get("/text.txt", headers: { "Range" => range })
      assert_status accepted(200, 416), response
      assert_equal TEXT, response.body if response.status == 200
      assert_empty response.all("content-range") if response.status == 200
    end
  end

  it "handles numbers that overflow" do
    %w[18446744073709551616 9223372036854775808 18446744073709551615 99999999999999999999999999].each do |number|
      { "bytes=0-#{number}" => TEXT, "bytes=-#{number}" => TEXT, "bytes=#{number}-" => nil, "bytes=#{number}-#{number}" => nil }.each do |range, body|
        response = get("/text.txt", headers: { "Range" => range })
        assert_status accepted(body ? 206 : 416, 200, 206, 416), response, range
        assert_equal body || TEXT, response.body, range if response.status != 416
        refute_equal 206, response.status, range unless body
      end
    end
  end

  it "sends several ranges as parts, or the whole file" do
    response = get("/text.txt", headers: { "Range" => "bytes=0-1,10-12,-3" })
    assert_status accepted(206, 200), response
    return assert_equal(TEXT, response.body) if response.status == 200

    parts = ByteRanges.parts(response)
    assert_equal([[0, 1], [10, 12], [997, 999]], parts.map { |part| [part.from, part.to] })
    parts.each { |part| assert_equal TEXT[part.from..part.to], part.body }
    parts.each { |part| assert_match(%r{\Atext/plain}, part.type) }
    assert_equal [1000], parts.map(&:total).uniq
    assert_empty response.all("content-range")
  end

  it "accepts whitespace between ranges" do
    response = get("/text.txt", headers: { "Range" => "bytes=0-1, 10-12 ,  20-29" })
    assert_status accepted(206, 200), response
    assert_equal [TEXT[0..1], TEXT[10..12], TEXT[20..29]], ByteRanges.parts(response).map(&:body) if response.status == 206
  end

  it "drops ranges beyond the end from a list" do
    response = get("/text.txt", headers: { "Range" => "bytes=2000-3000,0-9" })
    assert_status accepted(206, 200), response
    return assert_equal(TEXT, response.body) if response.status == 200

    body = response["content-range"] ? response.body : ByteRanges.parts(response).map(&:body).join
    assert_equal TEXT[0..9], body
  end

  it "responds with 416 when all of several ranges are beyond the end" do
    assert_status 416, get("/text.txt", headers: { "Range" => "bytes=2000-3000,4000-" })
  end

  it "does not send more than the file for overlapping ranges" do
    response = get("/text.txt", headers: { "Range" => "bytes=0-,0-,0-,0-,0-,0-,0-,0-" })
    assert_status accepted(200, 206, 416), response
    assert_operator response.body.bytesize, :<=, 1500
    assert_includes response.body, TEXT unless response.status == 416
  end

  it "limits the response to very many ranges" do
    ranges = "bytes=#{(0...300).map { |i| "#{i * 3}-#{i * 3}" }.join(',')}"
    response = get("/text.txt", headers: { "Range" => ranges })
    assert_status accepted(200, 206, 416), response
    assert_operator response.body.bytesize, :<=, 1500
  end

  it "sends several ranges of a large file exactly" do
    response = get("/large.bin", headers: { "Range" => "bytes=0-999999,2000000-2000009,-5" })
    assert_status accepted(206, 200), response
    return assert_equal(LARGE, response.body) if response.status == 200

    assert_equal [LARGE[0..999_999], LARGE[2_000_000..2_000_009], LARGE[-5..]], ByteRanges.parts(response).map(&:body)
  end

  it "sends a 206 with the validators of the file" do
    full = get("/text.txt")
    part = get("/text.txt", headers: { "Range" => "bytes=0-9" })
    %w[etag last-modified content-type].each { |name| assert_equal full[name], part[name], name }
  end

  {
    "its ETag" => [->(v) { v.etag }, 206], "its date, which a tool has set," => [->(v) { v.date }, 200], "another ETag" => [->(_) { '"other"' }, 200], "an earlier date" => [->(v) { v.date(-1) }, 200],
    "its ETag in weak form" => [->(v) { v.weak }, 200], "garbage" => [->(_) { "garbage" }, 200]
  }.each do |validator, (value, status)|
    it "responds with #{status} to a range with If-Range and #{validator}" do
      response = get("/text.txt", headers: { "Range" => "bytes=0-9", "If-Range" => value.call(validators) })
      assert_status status, response
      assert_equal status == 206 ? TEXT[0, 10] : TEXT, response.body
    end
  end

  it "responds with 206 to a range with If-Range and the date when the file was written" do
    File.write(root("written.txt"), TEXT)
    # The file cannot change again within the second of its time stamp.
    sleep 2.5
    date = get("/written.txt")["last-modified"]
    assert_status 206, get("/written.txt", headers: { "Range" => "bytes=0-9", "If-Range" => date })
  end

  it "sends the whole file when If-Range has a later date" do
    assert_status 200, get("/text.txt", headers: { "Range" => "bytes=0-9", "If-Range" => validators.date(60) })
  end

  it "ignores If-Range without a range" do
    assert_status 200, get("/text.txt", headers: { "If-Range" => validators.etag })
  end

  it "responds with 200, not 416, to an impossible range whose If-Range fails" do
    assert_status 200, get("/text.txt", headers: { "Range" => "bytes=5000-", "If-Range" => '"other"' })
  end

  it "evaluates conditions before ranges" do
    known = validators
    assert_status 304, get("/text.txt", headers: { "Range" => "bytes=0-9", "If-None-Match" => known.etag })
    assert_status 412, get("/text.txt", headers: { "Range" => "bytes=0-9", "If-Match" => '"other"' })
    assert_status 206, get("/text.txt", headers: { "Range" => "bytes=0-9", "If-Match" => known.etag })
    assert_status 304, get("/text.txt", headers: { "Range" => "bytes=5000-", "If-None-Match" => known.etag })
  end

  it "responds to a range of an empty file with 200 or 416" do
    ["bytes=0-", "bytes=0-0", "bytes=-1"].each { |range| assert_status accepted(416, 200), get("/empty.txt", headers: { "Range" => range }), range }
  end

  it "responds to HEAD with a range with no body" do
    connection = connect
    connection.write(request("HEAD", "/text.txt", "Range" => "bytes=0-9"))
    response = connection.read_response("HEAD")
    assert_status accepted(200, 206), response
    assert_equal response.status == 206 ? "10" : "1000", response["content-length"]
    assert connection.silent?(0.05)
  end

  it "serves ranges beyond 4 GiB" do
    File.open(root("huge.bin"), "r+b") { |file| file.pwrite("needle", 4_900_000_000) }
    response = get("/huge.bin", headers: { "Range" => "bytes=4899999998-4900000007" })
    assert_status 206, response
    assert_equal "\0\0needle\0\0", response.body
    assert_equal "bytes 4899999998-4900000007/5368709120", response["content-range"]
    assert_equal "5368709120", head("/huge.bin")["content-length"]
  end
end
