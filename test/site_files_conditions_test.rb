# frozen_string_literal: true

# Conditional requests for static files (RFC 9110, 13).

require "support/site_files_case"

class SiteFilesConditionsTest < SiteFilesCase
  {
    "If-None-Match with its ETag" => [->(v) { { "If-None-Match" => v.etag } }, 304],
    "If-None-Match with the ETag in weak form" => [->(v) { { "If-None-Match" => v.weak } }, 304],
    "If-None-Match with a list that has it first" => [->(v) { { "If-None-Match" => "#{v.etag}, \"other\"" } }, 304],
    "If-None-Match with a list that has it last" => [->(v) { { "If-None-Match" => "\"other\", \"more\", #{v.etag}" } }, 304],
    "If-None-Match with a list without blanks" => [->(v) { { "If-None-Match" => "\"other\",#{v.weak},\"more\"" } }, 304],
    "If-None-Match with a comma inside a tag" => [->(v) { { "If-None-Match" => "\"a,b\", #{v.etag}" } }, 304],
    "If-None-Match with *" => [->(_) { { "If-None-Match" => "*" } }, 304],
    "If-None-Match with another ETag" => [->(_) { { "If-None-Match" => '"other"' } }, 200],
    "If-None-Match with a list of others" => [->(_) { { "If-None-Match" => '"other", W/"more"' } }, 200],
    "If-None-Match with its ETag's beginning" => [->(v) { { "If-None-Match" => "#{v.etag[0..-3]}\"" } }, 200],
    "If-None-Match with garbage" => [->(_) { { "If-None-Match" => 'garbage " here' } }, 200],
    "If-None-Match with nothing" => [->(_) { { "If-None-Match" => "" } }, 200],
    "If-Modified-Since with its date" => [->(v) { { "If-Modified-Since" => v.date } }, 304],
    "If-Modified-Since with a later date" => [->(v) { { "If-Modified-Since" => v.date(60) } }, 304],
    "If-Modified-Since with an earlier date" => [->(v) { { "If-Modified-Since" => v.date(-1) } }, 200],
    "If-Modified-Since with its date in RFC 850 format" => [->(v) { { "If-Modified-Since" => v.rfc850 } }, 304],
    "If-Modified-Since with its date in asctime format" => [->(v) { { "If-Modified-Since" => v.asctime } }, 304],
    "If-Modified-Since with an earlier date in RFC 850 format" => [->(v) { { "If-Modified-Since" => v.rfc850(-1) } }, 200],
    "If-Modified-Since with an earlier date in asctime format" => [->(v) { { "If-Modified-Since" => v.asctime(-86_400) } }, 200],
    "If-Modified-Since with the epoch" => [->(_) { { "If-Modified-Since" => "Thu, 01 Jan 1970 00:00:00 GMT" } }, 200],
    "If-Modified-Since with an invalid date" => [->(_) { { "If-Modified-Since" => "yesterday" } }, 200],
    "If-Modified-Since with nothing" => [->(_) { { "If-Modified-Since" => "" } }, 200],
    "If-Modified-Since with the 32nd of a month" => [->(_) { { "If-Modified-Since" => "Sun, 32 Dec 2022 00:00:00 GMT" } }, 200],
    "If-Modified-Since with a number" => [->(v) { { "If-Modified-Since" => v.modified.to_i.to_s } }, 200],
    "If-None-Match before If-Modified-Since, when it fails" => [->(v) { { "If-None-Match" => '"other"', "If-Modified-Since" => v.date } }, 200],
    "If-None-Match before If-Modified-Since, when it holds" => [->(v) { { "If-None-Match" => v.etag, "If-Modified-Since" => v.date(-60) } }, 304],
    "If-Match with its ETag" => [->(v) { { "If-Match" => v.etag } }, 200],
    "If-Match with a list that has it" => [->(v) { { "If-Match" => "\"other\", #{v.etag}" } }, 200],
    "If-Match with *" => [->(_) { { "If-Match" => "*" } }, 200],
    "If-Match with another ETag" => [->(_) { { "If-Match" => '"other"' } }, 412],
    "If-Match with the ETag in weak form" => [->(v) { { "If-Match" => v.weak } }, 412],
    "If-Match with a list of others" => [->(_) { { "If-Match" => '"other", "more"' } }, 412],
    "If-Unmodified-Since with its date" => [->(v) { { "If-Unmodified-Since" => v.date } }, 200],
    "If-Unmodified-Since with a later date" => [->(v) { { "If-Unmodified-Since" => v.date(60) } }, 200],
    "If-Unmodified-Since with an earlier date" => [->(v) { { "If-Unmodified-Since" => v.date(-1) } }, 412],
    "If-Unmodified-Since with an earlier date in asctime format" => [->(v) { { "If-Unmodified-Since" => v.asctime(-1) } }, 412],
    "If-Unmodified-Since with an invalid date" => [->(_) { { "If-Unmodified-Since" => "yesterday" } }, 200],
    "If-Match before If-Unmodified-Since" => [->(v) { { "If-Match" => v.etag, "If-Unmodified-Since" => v.date(-60) } }, 200],
    "If-Match that holds and If-None-Match that matches" => [->(v) { { "If-Match" => v.etag, "If-None-Match" => v.etag } }, 304],
    "If-Match that fails and If-None-Match that matches" => [->(v) { { "If-Match" => '"other"', "If-None-Match" => v.etag } }, 412],
    "If-Unmodified-Since that holds and If-Modified-Since that fails" => [->(v) { { "If-Unmodified-Since" => v.date, "If-Modified-Since" => v.date } }, 304]
  }.each do |condition, (headers, status)|
    it "responds with #{status} to #{condition}" do
      connection = connect
      connection.write(request("GET", "/text.txt", headers.call(validators)))
      response = connection.read_response
      assert_status status, response
      assert_equal TEXT, response.body if status == 200
      assert_alive connection, "/text.txt" unless status == 412
    end
  end

  it "sends a 304 with the validators, and without body, length or type" do
    full = get("/text.txt")
    response = get("/text.txt", headers: { "If-None-Match" => full["etag"] })
    assert_equal full["etag"], response["etag"]
    assert response["date"]
    assert_includes accepted([[]], ["1000"]), response.all("content-length")
    assert_includes accepted([full.all("last-modified")], []), response.all("last-modified")
  end

  it "responds to HEAD with conditions as GET" do
    known = validators
    assert_status 304, head("/text.txt", headers: { "If-None-Match" => known.etag })
    assert_status 304, head("/text.txt", headers: { "If-Modified-Since" => known.date })
    assert_status 412, head("/text.txt", headers: { "If-Match" => '"other"' })
  end

  it "does not let conditions hide that a file is missing" do
    [{ "If-None-Match" => "*" }, { "If-None-Match" => '"x"' }, { "If-Modified-Since" => Time.now.httpdate }, { "If-Match" => '"x"' }].each do |headers|
      assert_status 404, get("/missing", headers: headers), headers.inspect
    end
  end
end
