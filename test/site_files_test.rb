# frozen_string_literal: true

# A folder of files over real sockets: what RFC 9110 says about validators, conditions, ranges and codings, what users
# expect of names, types and folders, and what attackers try with paths and links. Several right answers count as right.
#
# The questions were tried on nginx 1.22 and H2O 2.2.5 (TEST_SERVER=nginx, h2o); support/peers.rb has their configurations.
# nginx misses six of 303: Allow in a 405; If-Match before If-Unmodified-Since; If-None-Match before If-Modified-Since; a broken
# If-Unmodified-Since; the connection after a 412; a socket's file (500). H2O misses 66: If-Match, If-Unmodified-Since and If-Range
# altogether, lists and weak tags in If-None-Match, old forms of dates, q-values, dot files, links out of the root, a FIFO.

require "support/site_case"
require "support/conditions"

class SiteFilesTest < SiteCase
  parallel!

  TEXT = "0123456789" * 100
  LARGE = Random.new(3).bytes(3_000_000)
  SCRIPT = (1..800).map { |i| "export const value#{i} = #{i * 7919 % 1000};\n" }.join
  PIXELS = "\x89PNG\r\n\x1A\n".b + "\0" * 8000
  MISSING_PAGE = "<h1>nothing here</h1>"
  WRITTEN = Time.utc(2020, 2, 29, 12, 34, 56)
  CAFE_NFC = "caf\u00e9.txt"
  CAFE_NFD = "cafe\u0301.txt"
  LONG_NAME = "#{'n' * 251}.txt".freeze

  PAGES = {
    "index.html" => "<p>home", "page.html" => "<p>page", "text.txt" => TEXT, "style.css" => "a{}", "code.js" => "1", "data.json" => "{}", "image.svg" => "<svg/>",
    "image.png" => "\x89PNG".b, "photo.jpg" => "\xFF\xD8".b, "font.woff2" => "wOF2", "data.xml" => "<a/>", "code.wasm" => "\0asm", "icon.ico" => "\0\0\1\0", "film.mp4" => "ftyp",
    "paper.pdf" => "%PDF-", "UPPER.HTML" => "<p>upper", "archive.tar.gz" => "\x1F\x8B".b, "picture.webp" => "RIFF", "app.webmanifest" => "{}", "module.mjs" => "2",
    "empty.txt" => "", "large.bin" => LARGE, "no-extension" => "?", "CamelCase.txt" => "camel",
    "dir/index.html" => "<p>dir", "dir/inside.txt" => "inside", "dir/deep/deeper/text.txt" => "deep", "noindex/inside.txt" => "inside",
    "with space/index.html" => "<p>space dir", "caf\u00e9/index.html" => "<p>cafe dir", "what?/index.html" => "<p>what dir", "50%/index.html" => "<p>half", "evil.test/index.html" => "<p>dir, not host",
    "with space.txt" => "space", "quote'\".txt" => "quote", "plus+.txt" => "plus", "plus .txt" => "no plus", "what?.txt" => "question", "hash#tag.txt" => "hash", "50%.txt" => "percent",
    "semi;colon.txt" => "semicolon", "a&b=c.txt" => "ampersand", "a:b.txt" => "colon", "~tilde.txt" => "tilde", "back\\slash.txt" => "backslash", "%41.txt" => "percent forty-one", "A.txt" => "letter",
    CAFE_NFC => "composed", CAFE_NFD => "decomposed", "\u65e5\u672c.txt" => "japan", "\u{1f9f1}.txt" => "brick", LONG_NAME => "long",
    "..dots.txt" => "hidden", "dots...txt" => "dots too", "index.txt" => "no index",
    "script.js" => SCRIPT, "small.css" => "a{color:red}", "pixels.png" => PIXELS,
    "side.css" => "as it is #{'.' * 600}", "three.css" => "as it is #{'.' * 600}", "brotli.css" => "as it is #{'.' * 600}",
    ".hidden" => "hidden", ".env" => "hidden", ".git/config" => "hidden", "dir/.htaccess" => "hidden", "dir/.svn/entries" => "hidden", ".well-known/security.txt" => "contact",
    "errors/404.html" => MISSING_PAGE
  }.freeze

  # Side-cars say what they are, so that a test knows which one it got.
  def self.side_car(coding)
    Codings.installed?(coding) ? Codings.encode(coding, "from the #{coding} side-car") : "not asked for"
  end

  PREPARE = lambda do |dir|
    root = File.join(dir, "public_html")
    { "side.css.gz" => "gzip", "three.css.gz" => "gzip", "three.css.br" => "br", "three.css.zst" => "zstd", "brotli.css.br" => "br" }.each do |name, coding|
      File.binwrite(File.join(root, name), side_car(coding))
    end
    FileUtils.mkdir(File.join(root, "empty-dir"))
    FileUtils.mkdir(File.join(root, "line\r\nbreak: x"))
    File.write(File.join(root, "line\r\nbreak: x", "index.html"), "<p>break")
    Dir.chdir(root) { UNIXServer.new("socket.txt").close } # the name of a socket may not be long
    { "inside-link.txt" => "text.txt", "loop.txt" => "loop.txt", "broken-link.txt" => "missing", "out.txt" => "../secret.txt", "absolute.txt" => File.join(dir, "secret.txt"),
      "out-dir" => "../private", "passwd.txt" => "/etc/hostname", "up" => "..", "chain.txt" => "dir/chain.txt", "dir/chain.txt" => "../../secret.txt", "dev.txt" => "/dev/zero",
      "proc.txt" => "/proc/self/environ" }.each { |name, target| File.symlink(target, File.join(root, name)) }
    Dir.glob("**/*", base: root).each { |name| File.lutime(WRITTEN, WRITTEN, File.join(root, name)) }
    File.truncate(File.join(root, "huge.bin").tap { |name| FileUtils.touch(name) }, 5 << 30)
  end

  shared_site prepare: PREPARE, rules: { root: "public_html/", error_page: "errors/404.html" },
              files: PAGES.transform_keys { |name| "public_html/#{name}" }.merge("secret.txt" => "outside", "private/secret.txt" => "outside", "public_html_secret/secret.txt" => "outside")

  def root(name)
    server.path(File.join("public_html", name))
  end

  def validators(path = "/text.txt")
    Validators.of(get(path))
  end

  # --- the answer as a whole

  it "answers GET with the file and nothing else" do
    response = get("/text.txt")
    assert_status 200, response
    assert_equal TEXT, response.body
    assert_equal :length, response.framing
  end

  it "gives a strong ETag in quotes" do
    assert_match(/\A"[\x21\x23-\x7e]+"\z/, get("/text.txt")["etag"])
  end

  it "gives the time of writing as Last-Modified" do
    assert_equal "Sat, 29 Feb 2020 12:34:56 GMT", get("/text.txt")["last-modified"]
  end

  it "gives the same validators each time" do
    assert_equal validators, validators
  end

  it "gives different files different ETags" do
    assert_equal 4, %w[/text.txt /data.json /page.html /large.bin].map { |path| get(path)["etag"] }.uniq.size
  end

  it "gives a Date" do
    assert_in_delta Time.now.to_i, Time.httpdate(get("/text.txt")["date"]).to_i, 60
  end

  it "says that it accepts ranges" do
    assert_equal "bytes", get("/text.txt")["accept-ranges"]
  end

  it "answers an empty file" do
    response = get("/empty.txt")
    assert_status 200, response
    assert_equal ["0", ""], [response["content-length"], response.body]
  end

  it "answers a file of megabytes byte by byte" do
    assert_equal Digest::SHA256.hexdigest(LARGE), Digest::SHA256.hexdigest(get("/large.bin").body)
  end

  it "does not look at the query" do
    ["/text.txt?", "/text.txt?v=2", "/text.txt?a=/../../x", "/text.txt?%00", "/text.txt??"].each { |path| assert_equal TEXT, get(path).body, path }
  end

  it "reads a target in absolute form" do
    assert_equal TEXT, ask("GET http://example.test/text.txt HTTP/1.1\r\nHost: example.test\r\n\r\n").body
  end

  it "answers HTTP/1.0" do
    connection = connect
    connection.write("GET /text.txt HTTP/1.0\r\n\r\n")
    assert_equal TEXT, connection.read_response.body
    assert_closed connection
  end

  it "closes after the file when asked" do
    connection = connect
    connection.write(request("GET", "/large.bin", "Connection" => "close"))
    response = connection.read_response
    assert_equal LARGE.bytesize, response.body.bytesize
    assert_includes response.connection, "close"
    assert_closed connection
  end

  # --- methods

  ["/text.txt", "/empty.txt", "/large.bin", "/", "/dir/", "/script.js"].each do |path|
    it "answers HEAD #{path} with the fields of GET and no body" do
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

  it "answers HEAD of a compressed file with the fields of its GET" do
    headers = { "Accept-Encoding" => "gzip" }
    full = get("/script.js", headers: headers)
    empty = head("/script.js", headers: headers)
    %w[content-encoding etag vary content-type].each { |name| assert_equal full.all(name), empty.all(name), name }
    assert_includes [[], full.all("content-length")], empty.all("content-length")
  end

  it "answers HEAD of what is missing without a body" do
    connection = connect
    connection.write(request("HEAD", "/missing"))
    assert_status 404, connection.read_response("HEAD")
    assert connection.silent?(0.05)
    assert_alive connection, "/text.txt"
  end

  it "answers HEAD of a folder without its slash with the redirect" do
    assert_redirect "/dir/", head("/dir")
  end

  it "answers OPTIONS with what is allowed, or refuses it" do
    response = options("/text.txt")
    assert_status [200, 204, 405], response
    assert_match(/\bGET\b.*\bHEAD\b/, response["allow"]) unless response.status == 405
    refute_includes response.body, TEXT
  end

  %w[POST PUT DELETE PATCH].each do |method|
    it "refuses #{method} of a file and leaves it alone" do
      connection = connect
      connection.write(request(method, "/text.txt", {}, "new content"))
      assert_status 405, connection.read_response(method)
      assert_equal TEXT, get("/text.txt").body
      assert_equal TEXT, File.binread(root("text.txt"))
    end
  end

  it "names the allowed methods when it refuses one" do
    assert_match(/\AGET, HEAD\b/, ask(request("POST", "/text.txt", {}, "x"))["allow"])
  end

  it "refuses methods that nobody knows" do
    %w[FROBNICATE PROPFIND MKCOL].each { |method| assert_status [400, 405, 501], ask(request(method, "/text.txt")), method }
  end

  it "refuses TRACE and does not echo it" do
    response = ask(request("TRACE", "/text.txt", "X-Cookie" => "secret"))
    assert_status [400, 405, 501], response
    refute_includes response.body, "secret"
  end

  it "does not read the body of a refused POST as a request" do
    connection = connect
    connection.write(request("POST", "/text.txt", {}, request("GET", "/page.html")) + request("GET", "/dir/inside.txt"))
    assert_status 405, connection.read_response("POST")
    following = whole_or_nil { connection.read_response }
    refute_includes following.body, "<p>page" if following
  end

  # --- conditional requests

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
    "If-Modified-Since with its date in the form of RFC 850" => [->(v) { { "If-Modified-Since" => v.rfc850 } }, 304],
    "If-Modified-Since with its date in the form of asctime" => [->(v) { { "If-Modified-Since" => v.asctime } }, 304],
    "If-Modified-Since with an earlier date in the form of RFC 850" => [->(v) { { "If-Modified-Since" => v.rfc850(-1) } }, 200],
    "If-Modified-Since with an earlier date in the form of asctime" => [->(v) { { "If-Modified-Since" => v.asctime(-86_400) } }, 200],
    "If-Modified-Since with the beginning of time" => [->(_) { { "If-Modified-Since" => "Thu, 01 Jan 1970 00:00:00 GMT" } }, 200],
    "If-Modified-Since with no date" => [->(_) { { "If-Modified-Since" => "yesterday" } }, 200],
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
    "If-Unmodified-Since with an earlier date in the form of asctime" => [->(v) { { "If-Unmodified-Since" => v.asctime(-1) } }, 412],
    "If-Unmodified-Since with no date" => [->(_) { { "If-Unmodified-Since" => "yesterday" } }, 200],
    "If-Match before If-Unmodified-Since" => [->(v) { { "If-Match" => v.etag, "If-Unmodified-Since" => v.date(-60) } }, 200],
    "If-Match that holds and If-None-Match that matches" => [->(v) { { "If-Match" => v.etag, "If-None-Match" => v.etag } }, 304],
    "If-Match that fails and If-None-Match that matches" => [->(v) { { "If-Match" => '"other"', "If-None-Match" => v.etag } }, 412],
    "If-Unmodified-Since that holds and If-Modified-Since that fails" => [->(v) { { "If-Unmodified-Since" => v.date, "If-Modified-Since" => v.date } }, 304]
  }.each do |condition, (headers, status)|
    it "answers #{status} to #{condition}" do
      connection = connect
      connection.write(request("GET", "/text.txt", headers.call(validators)))
      response = connection.read_response
      assert_status status, response
      assert_equal TEXT, response.body if status == 200
      assert_alive connection, "/text.txt" unless status == 412
    end
  end

  it "gives a 304 the validators and no body, length or type of another answer" do
    full = get("/text.txt")
    response = get("/text.txt", headers: { "If-None-Match" => full["etag"] })
    assert_equal full["etag"], response["etag"]
    assert response["date"]
    assert_includes [[], ["1000"]], response.all("content-length")
    assert_includes [[], full.all("last-modified")], response.all("last-modified")
  end

  it "answers HEAD with conditions as GET" do
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

  # --- ranges

  { "bytes=0-9" => [0, 9], "bytes=10-19" => [10, 19], "bytes=0-0" => [0, 0], "bytes=990-" => [990, 999], "bytes=0-" => [0, 999], "bytes=999-" => [999, 999], "bytes=-10" => [990, 999],
    "bytes=-1" => [999, 999], "bytes=-1000" => [0, 999], "bytes=-2000" => [0, 999], "bytes=995-2000" => [995, 999], "bytes=0-999" => [0, 999], "bytes=007-0009" => [7, 9],
    "bytes=0-9999999999" => [0, 999] }.each do |range, (first, last)|
    it "answers the range #{range}" do
      response = get("/text.txt", headers: { "Range" => range })
      assert_status 206, response
      assert_equal TEXT[first..last], response.body
      assert_equal "bytes #{first}-#{last}/1000", response["content-range"]
      assert_equal (last - first + 1).to_s, response["content-length"]
    end
  end

  it "reads the unit of ranges without regard to case, or not at all" do
    response = get("/text.txt", headers: { "Range" => "Bytes=0-9" })
    assert_status [200, 206], response
    assert_equal response.status == 206 ? TEXT[0, 10] : TEXT, response.body
  end

  ["bytes=1000-", "bytes=5000-6000", "bytes=9999999999-", "bytes=-0"].each do |range|
    it "answers 416 to #{range} and stays open" do
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
    it "answers the whole file, or 416, to the range #{range.inspect}" do
      response = get("/text.txt", headers: { "Range" => range })
      assert_status [200, 416], response
      assert_equal TEXT, response.body if response.status == 200
      assert_empty response.all("content-range") if response.status == 200
    end
  end

  it "is not led astray by numbers that overflow" do
    %w[18446744073709551616 9223372036854775808 18446744073709551615 99999999999999999999999999].each do |number|
      { "bytes=0-#{number}" => TEXT, "bytes=-#{number}" => TEXT, "bytes=#{number}-" => nil, "bytes=#{number}-#{number}" => nil }.each do |range, body|
        response = get("/text.txt", headers: { "Range" => range })
        assert_status [200, 206, 416], response, range
        assert_equal body || TEXT, response.body, range if response.status != 416
        refute_equal 206, response.status, range unless body
      end
    end
  end

  it "answers several ranges in parts, or the whole file" do
    response = get("/text.txt", headers: { "Range" => "bytes=0-1,10-12,-3" })
    assert_status [200, 206], response
    return assert_equal(TEXT, response.body) if response.status == 200

    parts = ByteRanges.parts(response)
    assert_equal([[0, 1], [10, 12], [997, 999]], parts.map { |part| [part.from, part.to] })
    parts.each { |part| assert_equal TEXT[part.from..part.to], part.body }
    parts.each { |part| assert_match(%r{\Atext/plain}, part.type) }
    assert_equal [1000], parts.map(&:total).uniq
    assert_empty response.all("content-range")
  end

  it "reads blanks between ranges" do
    response = get("/text.txt", headers: { "Range" => "bytes=0-1, 10-12 ,  20-29" })
    assert_status [200, 206], response
    assert_equal [TEXT[0..1], TEXT[10..12], TEXT[20..29]], ByteRanges.parts(response).map(&:body) if response.status == 206
  end

  it "leaves out those of several ranges that are beyond the end" do
    response = get("/text.txt", headers: { "Range" => "bytes=2000-3000,0-9" })
    assert_status [200, 206], response
    return assert_equal(TEXT, response.body) if response.status == 200

    body = response["content-range"] ? response.body : ByteRanges.parts(response).map(&:body).join
    assert_equal TEXT[0..9], body
  end

  it "answers 416 when all of several ranges are beyond the end" do
    assert_status 416, get("/text.txt", headers: { "Range" => "bytes=2000-3000,4000-" })
  end

  it "does not send more than the file for overlapping ranges" do
    response = get("/text.txt", headers: { "Range" => "bytes=0-,0-,0-,0-,0-,0-,0-,0-" })
    assert_status [200, 206, 416], response
    assert_operator response.body.bytesize, :<=, 1500
    assert_includes response.body, TEXT unless response.status == 416
  end

  it "does not make much of very many ranges" do
    ranges = "bytes=#{(0...300).map { |i| "#{i * 3}-#{i * 3}" }.join(',')}"
    response = get("/text.txt", headers: { "Range" => ranges })
    assert_status [200, 206, 416], response
    assert_operator response.body.bytesize, :<=, 1500
  end

  it "answers several ranges of a large file exactly" do
    response = get("/large.bin", headers: { "Range" => "bytes=0-999999,2000000-2000009,-5" })
    assert_status [200, 206], response
    return assert_equal(LARGE, response.body) if response.status == 200

    assert_equal [LARGE[0..999_999], LARGE[2_000_000..2_000_009], LARGE[-5..]], ByteRanges.parts(response).map(&:body)
  end

  it "gives a 206 the validators of the file" do
    full = get("/text.txt")
    part = get("/text.txt", headers: { "Range" => "bytes=0-9" })
    %w[etag last-modified content-type].each { |name| assert_equal full[name], part[name], name }
  end

  {
    "its ETag" => [->(v) { v.etag }, 206], "its date" => [->(v) { v.date }, 206], "another ETag" => [->(_) { '"other"' }, 200], "an earlier date" => [->(v) { v.date(-1) }, 200],
    "its ETag in weak form" => [->(v) { v.weak }, 200], "garbage" => [->(_) { "garbage" }, 200]
  }.each do |said, (value, status)|
    it "answers #{status} to a range with If-Range and #{said}" do
      response = get("/text.txt", headers: { "Range" => "bytes=0-9", "If-Range" => value.call(validators) })
      assert_status status, response
      assert_equal status == 206 ? TEXT[0, 10] : TEXT, response.body
    end
  end

  it "takes a later date in If-Range for another file" do
    assert_status 200, get("/text.txt", headers: { "Range" => "bytes=0-9", "If-Range" => validators.date(60) })
  end

  it "ignores If-Range without a range" do
    assert_status 200, get("/text.txt", headers: { "If-Range" => validators.etag })
  end

  it "answers 200, not 416, to an impossible range whose If-Range fails" do
    assert_status 200, get("/text.txt", headers: { "Range" => "bytes=5000-", "If-Range" => '"other"' })
  end

  it "judges conditions before ranges" do
    known = validators
    assert_status 304, get("/text.txt", headers: { "Range" => "bytes=0-9", "If-None-Match" => known.etag })
    assert_status 412, get("/text.txt", headers: { "Range" => "bytes=0-9", "If-Match" => '"other"' })
    assert_status 206, get("/text.txt", headers: { "Range" => "bytes=0-9", "If-Match" => known.etag })
    assert_status 304, get("/text.txt", headers: { "Range" => "bytes=5000-", "If-None-Match" => known.etag })
  end

  it "answers a range of an empty file with 200 or 416" do
    ["bytes=0-", "bytes=0-0", "bytes=-1"].each { |range| assert_status [200, 416], get("/empty.txt", headers: { "Range" => range }), range }
  end

  it "answers HEAD with a range with no body" do
    connection = connect
    connection.write(request("HEAD", "/text.txt", "Range" => "bytes=0-9"))
    response = connection.read_response("HEAD")
    assert_status [200, 206], response
    assert_equal response.status == 206 ? "10" : "1000", response["content-length"]
    assert connection.silent?(0.05)
  end

  it "answers ranges beyond 4 GiB" do
    File.open(root("huge.bin"), "r+b") { |file| file.pwrite("needle", 4_900_000_000) }
    response = get("/huge.bin", headers: { "Range" => "bytes=4899999998-4900000007" })
    assert_status 206, response
    assert_equal "\0\0needle\0\0", response.body
    assert_equal "bytes 4899999998-4900000007/5368709120", response["content-range"]
    assert_equal "5368709120", head("/huge.bin")["content-length"]
  end

  # --- content codings

  def coded(path, accept)
    get(path, headers: { "Accept-Encoding" => accept })
  end

  it "compresses text for those who accept gzip" do
    response = coded("/script.js", "gzip")
    assert_status 200, response
    assert_equal "gzip", response["content-encoding"]
    assert_equal SCRIPT, Codings.decode(response)
    assert_operator response.body.bytesize, :<, SCRIPT.bytesize / 2
  end

  { "gzip, deflate, br" => %w[gzip br], "gzip;q=0.5" => %w[gzip], "GZIP" => ["gzip", nil], "*" => ["gzip", "br", "zstd", nil], "deflate, gzip;q=1.0, *;q=0.5" => %w[gzip br zstd], "br;q=0, gzip" => %w[gzip],
    "gzip ; q=0.8" => ["gzip", nil], "identity;q=0.5, gzip;q=1" => %w[gzip], "br" => ["br", nil], "zstd" => ["zstd", nil], "gzip;q=0" => [nil], "gzip;q=0.000" => [nil], "identity" => [nil], "" => [nil],
    "*;q=0" => [nil, :refused], "gzipped" => [nil], "xgzip, gzip2" => [nil], "compress" => [nil], "deflate" => [nil], ";;;,,q=,gzip;q=x" => ["gzip", nil], "identity;q=0, gzip" => %w[gzip],
    "gzip;q=0, *" => ["br", "zstd", nil] }.each do |accept, codings|
    it "chooses rightly for Accept-Encoding: #{accept}" do
      response = coded("/script.js", accept)
      return assert_includes(codings, :refused) if response.status == 406

      assert_status 200, response
      assert_includes codings, response["content-encoding"]
      assert_equal SCRIPT, Codings.decode(response)
    end
  end

  it "says Vary where it may compress, compressed or not" do
    [nil, "gzip", "identity", "br"].each do |accept|
      response = get("/script.js", headers: accept ? { "Accept-Encoding" => accept } : {})
      assert_equal ["accept-encoding"], response.all("vary").flat_map { |value| value.downcase.split(/, */) }, accept.inspect
    end
  end

  it "gives the compressed form a validator of its own" do
    plain = get("/script.js")
    packed = coded("/script.js", "gzip")
    assert(packed["etag"].nil? || packed["etag"].start_with?("W/") || packed["etag"] != plain["etag"], packed.raw_head)
  end

  it "answers 304 to a client that has the compressed form" do
    packed = coded("/script.js", "gzip")
    tag = packed["etag"]
    headers = { "Accept-Encoding" => "gzip" }.merge(tag ? { "If-None-Match" => tag } : { "If-Modified-Since" => packed["last-modified"] })
    assert_status 304, get("/script.js", headers: headers)
  end

  it "never mixes the ranges of two forms" do
    response = get("/script.js", headers: { "Accept-Encoding" => "gzip", "Range" => "bytes=0-99" })
    assert_status [200, 206], response
    packed = coded("/script.js", "gzip").body
    return assert_equal(SCRIPT, Codings.decode(response)) if response.status == 200
    return assert_equal(packed[0, 100], response.body) if response["content-encoding"]

    assert_equal [SCRIPT[0, 100], "bytes 0-99/#{SCRIPT.bytesize}"], [response.body, response["content-range"]]
  end

  it "does not continue the plain form with the compressed one's tag" do
    tag = coded("/script.js", "gzip")["etag"] or return
    response = get("/script.js", headers: { "If-Range" => tag, "Range" => "bytes=10-" })
    assert_status 200, response
  end

  it "does not compress what is small" do
    response = coded("/small.css", "gzip, br, zstd")
    assert_nil response["content-encoding"]
    assert_equal "a{color:red}", response.body
  end

  it "does not compress what is compressed" do
    %w[/pixels.png /font.woff2 /archive.tar.gz /large.bin].each { |path| assert_nil coded(path, "gzip, br, zstd")["content-encoding"], path }
  end

  it "compresses for HTTP/1.0 without chunks, or not at all" do
    connection = connect
    connection.write("GET /script.js HTTP/1.0\r\nAccept-Encoding: gzip\r\n\r\n")
    assert_equal SCRIPT, Codings.decode(connection.read_response)
  end

  it "keeps a connection right after compressed answers" do
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

  it "does not send a side-car to those who do not want it" do
    [nil, "identity", "gzip;q=0", "deflate"].each do |accept|
      response = get("/side.css", headers: accept ? { "Accept-Encoding" => accept } : {})
      assert_equal PAGES["side.css"], response.body, accept.inspect
      assert_nil response["content-encoding"]
    end
  end

  it "answers conditions and HEAD of a side-car" do
    full = coded("/side.css", "gzip")
    assert_status 304, get("/side.css", headers: { "Accept-Encoding" => "gzip", "If-None-Match" => full["etag"] })
    assert_equal full["content-length"], head("/side.css", headers: { "Accept-Encoding" => "gzip" })["content-length"]
    refute_equal full["etag"], get("/side.css")["etag"]
  end

  it "answers a range of a side-car's bytes" do
    full = coded("/side.css", "gzip")
    part = get("/side.css", headers: { "Accept-Encoding" => "gzip", "Range" => "bytes=0-9" })
    assert_status [200, 206], part
    return assert_equal(full.body, part.body) if part.status == 200

    expected = part["content-encoding"] ? full.body[0, 10] : PAGES["side.css"][0, 10]
    assert_equal expected, part.body
  end

  it "sends a side-car that is asked for by name as a file" do
    response = get("/side.css.gz", headers: { "Accept-Encoding" => "gzip" })
    assert_nil response["content-encoding"]
    assert_equal "from the gzip side-car", Codings.gunzip(response.body)
  end

  # --- types

  { "page.html" => %r{\Atext/html; ?charset=utf-8\z}i, "text.txt" => %r{\Atext/plain; ?charset=utf-8\z}i, "style.css" => %r{\Atext/css\b}, "code.js" => %r{\A(text|application)/javascript\b}, "data.json" => %r{\Aapplication/json\b},
    "image.svg" => %r{\Aimage/svg\+xml\b}, "image.png" => %r{\Aimage/png\z}, "photo.jpg" => %r{\Aimage/jpeg\z}, "font.woff2" => %r{\Afont/woff2\z}, "data.xml" => %r{\A(text|application)/xml\b}, "code.wasm" => %r{\Aapplication/wasm\z},
    "icon.ico" => %r{\Aimage/(x-icon|vnd.microsoft.icon)\z}, "film.mp4" => %r{\Avideo/mp4\z}, "paper.pdf" => %r{\Aapplication/pdf\z}, "UPPER.HTML" => %r{\Atext/html\b}, "picture.webp" => %r{\Aimage/webp\z},
    "archive.tar.gz" => %r{\Aapplication/(x-)?(gzip|octet-stream)\z}, "no-extension" => %r{\A(application/octet-stream|text/plain)\b} }.each do |file, type|
    it "knows the type of #{file}" do
      assert_match type, get("/#{file}")["content-type"]
    end
  end

  # --- folders

  it "answers / with index.html" do
    response = get("/")
    assert_equal "<p>home", response.body
    assert_match(%r{\Atext/html}, response["content-type"])
  end

  it "answers a folder with its index.html" do
    assert_equal "<p>dir", get("/dir/").body
    assert_equal "<p>dir", get("/dir/?x=1").body
    assert_status 304, get("/dir/", headers: { "If-None-Match" => get("/dir/")["etag"] })
  end

  { "/dir" => "/dir/", "/dir?a=1&b=%2F" => "/dir/?a=1&b=%2F", "/with%20space" => "/with%20space/", "/caf%C3%A9" => "/caf%C3%A9/", "/what%3F" => "/what%3F/", "/50%25" => "/50%25/",
    "/evil.test" => "/evil.test/" }.each do |path, location|
    it "redirects #{path} to #{location}" do
      assert_redirect location, get(path)
    end
  end

  it "redirects a folder without an index to its slash, or says nothing of it" do
    { "/dir/deep" => "/dir/deep/", "/noindex" => "/noindex/", "/empty-dir" => "/empty-dir/" }.each do |path, location|
      response = get(path)
      response.status == 301 ? assert_redirect(location, response) : assert_status([403, 404], response)
    end
  end

  it "is led to no other host by two slashes" do
    ["//evil.test", "///evil.test", "//evil.test/", "/.//evil.test", "/dir/..//evil.test", "//evil.test/..", "/%2fevil.test", "//evil.test%2f..", "/\\evil.test", "/%5cevil.test", "//example.test@evil.test"].each do |path|
      location = get(path)["location"] or next
      refute_match(%r{\A(//|/?\\|http://(?!example\.test[:/]|127\.0\.0\.1))}, location, path)
    end
  end

  it "lets no line break into a Location" do
    ["/line%0d%0abreak:%20x", "/line%0D%0Abreak:%20x?y=1", "/dir%0d%0aSet-Cookie:%20x=1", "/dir?%0d%0aSet-Cookie:x=1", "/%0d%0aSet-Cookie:%20x=1/.."].each do |path|
      response = get(path)
      assert_empty response.all("break") + response.all("set-cookie"), path
      assert_match(/\A[\x21-\x7e]+\z/, response["location"], path) if response["location"]
    end
  end

  it "shows nothing of a folder without an index" do
    %w[/noindex/ /empty-dir/ /out-dir/].each { |path| assert_hidden get(path), "inside", path }
  end

  it "does not take a file for a folder" do
    ["/text.txt/", "/text.txt/more", "/text.txt/..%2ftext.txt/", "/index.html/"].each { |path| assert_status 404, get(path), path }
  end

  it "answers index.html by its name" do
    response = get("/index.html")
    assert_status [200, 301], response
    assert_equal "<p>home", response.body if response.status == 200
  end

  # --- names

  { "/with%20space.txt" => "space", "/quote'%22.txt" => "quote", "/quote%27%22.txt" => "quote", "/plus+.txt" => "plus", "/plus%2B.txt" => "plus", "/plus%20.txt" => "no plus", "/what%3f.txt" => "question",
    "/hash%23tag.txt" => "hash", "/50%25.txt" => "percent", "/semi;colon.txt" => "semicolon", "/a&b=c.txt" => "ampersand", "/a:b.txt" => "colon", "/~tilde.txt" => "tilde", "/%7Etilde.txt" => "tilde",
    "/caf%C3%A9.txt" => "composed", "/cafe%CC%81.txt" => "decomposed", "/%E6%97%A5%E6%9C%AC.txt" => "japan", "/%F0%9F%A7%B1.txt" => "brick", "/%2541.txt" => "percent forty-one", "/%41.txt" => "letter",
    "/te%78t.txt" => TEXT, "/dots...txt" => "dots too", "/dir/deep/deeper/text.txt" => "deep", "/.well-known/security.txt" => "contact" }.each do |path, body|
    it "answers #{path}" do
      response = get(path)
      assert_status 200, response
      assert_equal body, response.body
    end
  end

  it "answers raw UTF-8 in a target, or refuses it" do
    response = get("/caf\u00e9.txt".b)
    assert_status [200, 400], response
    assert_equal "composed", response.body if response.status == 200
  end

  it "answers names of 255 bytes and knows none that are longer" do
    assert_equal "long", get("/#{LONG_NAME}").body
    assert_status [404, 414], get("/#{'n' * 256}.txt")
    assert_status [404, 414], get("/#{'n' * 7000}")
  end

  it "survives very long and very deep paths" do
    assert_status [404, 414], get("/#{'a/' * 3000}")
    assert_status [200, 400, 404, 414], get("/#{'./' * 3000}text.txt")
    assert_status [400, 404, 414, 431], get("/#{'b' * 100_000}")
  end

  it "tells upper from lower case" do
    assert_equal "camel", get("/CamelCase.txt").body
    assert_status 404, get("/camelcase.txt")
    assert_status 404, get("/TEXT.TXT")
  end

  it "takes dots and doubled slashes as RFC 3986 has them, or refuses them" do
    ["/./text.txt", "/dir/../text.txt", "/dir/./../text.txt", "//text.txt", "/dir//..//text.txt", "/dir/%2e%2e/text.txt", "/%2e/text.txt"].each do |path|
      response = get(path)
      assert_status [200, 301, 400, 404], response, path
      assert_equal TEXT, response.body, path if response.status == 200
    end
  end

  it "refuses NUL, broken escapes and bytes that are no UTF-8" do
    { "/text.txt%00" => [400, 404], "/text.txt%00.html" => [400, 404], "/%00" => [400, 404], "/dir/%00/../text.txt" => [400, 404], "/%zz" => [400, 404], "/text.txt%" => [400, 404], "/text.txt%4" => [400, 404],
      "/%C3%28.txt" => [400, 404], "/%FF%FE" => [400, 404], "/%C0%AFtext.txt" => [400, 404], "/%ED%A0%80" => [400, 404], "/%u0041.txt" => [400, 404] }.each do |path, statuses|
      assert_status statuses, get(path), path
    end
  end

  it "reads no fragment into a name" do
    response = get("/text.txt#fragment")
    assert_status [200, 400, 404], response
    assert_equal TEXT, response.body if response.status == 200
  end

  # --- ways out of the root

  ["/../secret.txt", "/%2e%2e/secret.txt", "/..%2fsecret.txt", "/%2e%2e%2fsecret.txt", "/dir/../../secret.txt", "/dir/%2e%2e/%2e%2e/secret.txt", "/..%5csecret.txt", "/..\\secret.txt", "/....//secret.txt", "//../secret.txt",
   "/./../secret.txt", "/%252e%252e/secret.txt", "/dir/..%00/../../secret.txt", "/../public_html_secret/secret.txt", "/%c0%ae%c0%ae/secret.txt", "/.%2e/secret.txt", "/%2e./secret.txt", "/..;/secret.txt", "/dir/..;/..;/secret.txt",
   "/%uff0e%uff0e/secret.txt", "/\u2025/secret.txt".b, "/..%252fsecret.txt", "/.../secret.txt", "/up/secret.txt", "/out.txt", "/absolute.txt", "/chain.txt", "/out-dir/secret.txt", "/text.txt/../../secret.txt",
   "/missing/../../secret.txt", "/../../../../../../../../etc/hostname", "/passwd.txt", "/proc.txt"].each do |path|
    it "does not leave the root by #{path.dump[1..-2]}" do
      response = get(path)
      assert_status [301, 400, 403, 404], response
      refute_includes response.body, "outside"
      refute_includes response.body, File.read("/etc/hostname").strip
      refute_includes response.body, "PATH="
    end
  end

  it "does not leave the root by a target without a slash or with a host" do
    ["secret.txt", "../secret.txt", "http://example.test/../secret.txt", "http://example.test/%2e%2e/secret.txt", "file:///etc/hostname"].each do |target|
      refute_includes ask("GET #{target} HTTP/1.1\r\nHost: example.test\r\n\r\n").body, "outside", target
    end
  end

  it "follows links that stay inside, or none" do
    response = get("/inside-link.txt")
    assert_status [200, 403, 404], response
    assert_equal TEXT, response.body if response.status == 200
  end

  it "says 403 or 404 to links that go nowhere or in circles" do
    assert_status [403, 404], get("/loop.txt")
    assert_status [403, 404], get("/broken-link.txt")
  end

  ["/.hidden", "/%2ehidden", "/%2Ehidden", "/.env", "/.git/config", "/.git%2fconfig", "/.git", "/.git/", "/dir/.htaccess", "/dir/.svn/entries", "/dir/../.hidden", "//.hidden", "/./.hidden", "/.well-known/../.env", "/..dots.txt"].each do |path|
    it "hides #{path}" do
      assert_hidden get(path), "hidden"
    end
  end

  it "reads no device and no socket" do
    assert_status [403, 404], get("/dev.txt")
    assert_status [403, 404], get("/socket.txt")
  end

  it "does not wait for a FIFO" do
    own = another_site(files: { "public_html/text.txt" => TEXT }, prepare: ->(dir) { File.mkfifo(File.join(dir, "public_html/fifo.txt")) })
    waiting = connect(own)
    waiting.write(request("GET", "/fifo.txt"))
    assert_equal TEXT, get("/text.txt", to: own).body
    assert_status [403, 404], waiting.read_response
  end

  it "says 403 or 404 to files and folders that it may not read" do
    skip "root may read everything" if Process.uid.zero?

    { "locked.txt" => :file, "locked-dir/inside.txt" => :dir }.each do |name, kind|
      FileUtils.mkdir_p(File.dirname(root(name)))
      File.write(root(name), "locked")
      File.chmod(0o000, kind == :dir ? File.dirname(root(name)) : root(name))
      assert_hidden get("/#{name}"), "locked"
    ensure
      File.chmod(0o700, File.dirname(root(name)))
    end
  end

  # --- files that change

  it "shows new content at once, also of the same size within the same second" do
    path = root("changing-1.txt")
    200.times do |i|
      content = format("content %03d", i)
      File.write(path, content)
      assert_equal content, get("/changing-1.txt").body
    end
  end

  it "gives new content a new validator" do
    path = root("changing-2.txt")
    File.write(path, "first")
    first = get("/changing-2.txt")
    File.write(path, "second!")
    second = get("/changing-2.txt", headers: { "If-None-Match" => first["etag"] })
    assert_equal "second!", second.body
    refute_equal first["etag"], second["etag"]
  end

  it "shows a file that took another's place at once" do
    path = root("changing-3.txt")
    50.times do |i|
      File.write("#{path}.next", format("content %03d", i))
      File.utime(WRITTEN, WRITTEN, "#{path}.next")
      File.rename("#{path}.next", path)
      assert_equal format("content %03d", i), get("/changing-3.txt").body
    end
  end

  it "notices at once that files come and go" do
    path = root("changing-4.txt")
    20.times do
      assert_status 404, get("/changing-4.txt")
      File.write(path, "here")
      assert_equal "here", get("/changing-4.txt").body
      File.delete(path)
    end
  end

  it "notices that a file becomes a folder and back" do
    path = root("changing-5")
    3.times do
      File.write(path, "a file")
      assert_equal "a file", get("/changing-5").body
      File.delete(path)
      FileUtils.mkdir(path)
      File.write(File.join(path, "index.html"), "a folder")
      assert_redirect "/changing-5/", get("/changing-5")
      assert_equal "a folder", get("/changing-5/").body
      FileUtils.rm_r(path)
    end
  end

  it "compresses what is new at once" do
    path = root("changing-6.js")
    30.times do |i|
      content = format("let x = %03d;\n", i) * 200
      File.write(path, content)
      assert_equal content, Codings.decode(coded("/changing-6.js", "gzip"))
    end
  end

  it "notices at once that a folder's index comes and goes" do
    FileUtils.mkdir(root("changing-7"))
    3.times do
      assert_status [403, 404], get("/changing-7/")
      File.write(root("changing-7/index.html"), "index")
      assert_equal "index", get("/changing-7/").body
      File.delete(root("changing-7/index.html"))
    end
  end

  # Reads the head and a little of a file of 40 MB, lets the block change it, reads on. What came and whether it was whole.
  def changed_while_sent(name)
    content = Random.new(name.sum).bytes(1 << 20) * 40
    File.binwrite(root(name), content)
    connection = connect(receive_buffer: 65_536)
    connection.write(request("GET", "/#{name}"))
    response = connection.read_head
    assert_equal content.bytesize.to_s, response["content-length"]
    got = connection.read_exactly(10_000)
    yield root(name), content
    rest = whole_or_nil { connection.read_exactly(content.bytesize - got.bytesize) }
    [content, got + (rest || connection.buffered), !rest.nil?, connection]
  end

  # What the block read, nil when the connection ended before.
  def whole_or_nil
    yield
  rescue TruncatedResponse
    nil
  end

  it "ends the connection when a file shrinks while it is sent, and makes nothing up" do
    content, got, whole, connection = changed_while_sent("shrinking.bin") { |path| File.truncate(path, 4 << 20) }
    refute whole, "the end of what is gone cannot have been sent"
    assert connection.ended?
    assert content.start_with?(got), "what came is the file's beginning"
  end

  it "sends what it promised when a file grows while it is sent" do
    content, got, whole, connection = changed_while_sent("growing.bin") { |path| File.write(path, "more" * 100_000, mode: "ab") }
    assert whole
    assert_equal content, got
    assert_alive connection, "/text.txt"
  end

  it "sends the old file to its end when another takes its place" do
    content, got, whole, connection = changed_while_sent("replaced.bin") do |path|
      File.write("#{path}.next", "new")
      File.rename("#{path}.next", path)
    end
    assert whole
    assert_equal content, got
    assert_alive connection, "/text.txt"
    assert_equal "new", get("/replaced.bin").body
  end

  it "sends a file to its end that is deleted while it is sent" do
    content, got, whole, = changed_while_sent("deleted.bin") { |path| File.delete(path) }
    assert whole
    assert_equal content, got
    assert_status 404, get("/deleted.bin")
  end

  # --- connections

  it "sends 100 MiB as they are" do
    block = Random.new(7).bytes(1 << 20)
    digest = Digest::SHA256.new
    File.open(root("hundred.bin"), "wb") { |file| 100.times { |i| piece = block.sub(/\A.{8}/mn, [i].pack("Q")) and digest << piece and file << piece } }
    connection = connect
    connection.write(request("GET", "/hundred.bin"))
    length = Integer(connection.read_head["content-length"])
    seen = Digest::SHA256.new
    while length.positive?
      piece = connection.read_some
      length -= piece.bytesize
      seen << piece
    end
    assert_equal 0, length
    assert_equal digest.hexdigest, seen.hexdigest
    assert_alive connection, "/text.txt"
  end

  it "answers pipelined requests in order" do
    paths = { "/text.txt" => TEXT, "/dir/" => "<p>dir", "/empty.txt" => "", "/missing" => MISSING_PAGE, "/page.html" => "<p>page", "/large.bin" => LARGE }
    connection = connect
    asked = paths.keys.cycle.first(60)
    connection.write(asked.map { |path| request("GET", path) }.join)
    asked.each { |path| assert paths[path] == connection.read_response.body, path }
    assert connection.silent?
  end

  it "answers pipelined requests that come in single bytes" do
    connection = connect
    connection.write_slowly(request("GET", "/text.txt") + request("HEAD", "/text.txt") + request("GET", "/page.html"))
    assert_equal TEXT, connection.read_response.body
    connection.read_response("HEAD")
    assert_equal "<p>page", connection.read_response.body
  end

  it "keeps a connection over answers of every kind" do
    tag = validators.etag
    connection = connect
    3.times do
      [["/text.txt", {}, 200], ["/text.txt", { "If-None-Match" => tag }, 304], ["/missing", {}, 404], ["/text.txt", { "Range" => "bytes=5000-" }, 416], ["/text.txt", { "Range" => "bytes=1-2" }, 206],
       ["/text.txt", { "If-Match" => '"x"' }, 412], ["/dir", {}, 301]].each do |path, headers, status|
        connection.write(request("GET", path, headers))
        assert_status status, connection.read_response
      end
    end
    assert connection.silent?
  end

  it "serves others while a client takes its time" do
    slow = connect(receive_buffer: 4096)
    slow.write(request("GET", "/large.bin"))
    slow.read_head
    10.times { assert_equal TEXT, get("/text.txt").body }
    assert_equal LARGE[0, 1000], slow.read_exactly(1000)
  end

  it "serves many large files at a time" do
    clients = Array.new(20) { connect.write(request("GET", "/large.bin")) }
    clients.each { |client| assert LARGE == client.read_response.body }
  end

  it "survives clients that leave in the middle" do
    20.times do
      connection = connect(receive_buffer: 4096)
      connection.write(request("GET", "/large.bin"))
      connection.read_exactly(500)
      connection.reset!
    end
    assert_equal TEXT, get("/text.txt").body
  end

  # --- what is missing

  it "answers what is missing with the error page and 404" do
    response = get("/missing")
    assert_status 404, response
    assert_equal MISSING_PAGE, response.body
    assert_match(%r{\Atext/html}, response["content-type"])
  end

  it "answers what is missing with the whole page whatever is asked of it" do
    [{ "Range" => "bytes=0-3" }, { "If-None-Match" => "*" }, { "If-Modified-Since" => Time.now.httpdate }].each do |headers|
      response = get("/missing", headers: headers)
      assert_status 404, response, headers.inspect
      assert_equal MISSING_PAGE, response.body, headers.inspect
    end
  end

  it "refuses other methods for what is missing" do
    assert_status [404, 405], ask(request("POST", "/missing", {}, "x"))
  end
end

# What Firebrick promises beyond what every good server does.
class SiteFilesOwnTest < SiteCase
  parallel!

  shared_site(**SiteFilesTest.shared_options)

  def setup
    firebrick_only
  end

  def coded(path, accept)
    get(path, headers: { "Accept-Encoding" => accept })
  end

  it "answers OPTIONS with 204 and Allow" do
    response = options("/text.txt")
    assert_status 204, response
    assert_equal "GET, HEAD, OPTIONS", response["allow"]
  end

  it "names what is allowed in each 405" do
    %w[POST PUT DELETE PATCH].each do |method|
      response = ask(request(method, "/text.txt", {}, "x"))
      assert_status 405, response
      assert_equal "GET, HEAD, OPTIONS", response["allow"]
    end
  end

  it "makes a weak ETag of a strong one when it compresses" do
    tag = get("/script.js")["etag"]
    refute tag.start_with?("W/")
    packed = coded("/script.js", "gzip")["etag"]
    assert packed.start_with?("W/"), packed
    assert_status 304, get("/script.js", headers: { "Accept-Encoding" => "gzip", "If-None-Match" => packed })
  end

  it "gives what it compresses a length the second time at the latest" do
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
      assert_equal SiteFilesTest::SCRIPT, Codings.decode(response)
      side = coded("/three.css", accept)
      assert_equal coding ? "from the #{coding} side-car" : SiteFilesTest::PAGES["three.css"], Codings.decode(side)
    end
  end

  it "reads several Accept-Encoding fields as one" do
    response = ask("GET /script.js HTTP/1.1\r\nHost: x\r\nAccept-Encoding: identity;q=0.5\r\nAccept-Encoding: gzip\r\n\r\n")
    assert_equal "gzip", response["content-encoding"]
  end

  it "takes a side-car that there is before compressing, by the client's preference" do
    assert_equal "from the br side-car", Codings.decode(coded("/brotli.css", "br, gzip"))
    packed = coded("/brotli.css", "gzip")
    assert_equal "gzip", packed["content-encoding"]
    assert_equal SiteFilesTest::PAGES["brotli.css"], Codings.decode(packed)
  end

  it "gives side-cars strong validators of their own" do
    tags = %w[br zstd gzip identity].map { |coding| coded("/three.css", coding)["etag"] }
    assert_equal 4, tags.uniq.size, tags.inspect
  end

  it "does not send a side-car by way of a link that leaves the root" do
    File.symlink("../secret.txt", server.path("public_html/linked.css.gz"))
    File.write(server.path("public_html/linked.css"), "a{}")
    refute_includes coded("/linked.css", "gzip").body, "outside"
  end

  { "app.webmanifest" => "application/manifest+json", "module.mjs" => "text/javascript", "code.js" => "text/javascript", "data.json" => "application/json", "image.png" => "image/png" }.each do |file, type|
    it "says #{type} of #{file}" do
      assert_equal type, get("/#{file}")["content-type"].sub(/; ?charset=utf-8\z/i, "")
    end
  end

  it "gives no charset to what has none" do
    %w[/image.png /font.woff2 /code.wasm /large.bin /data.json].each { |path| refute_match(/charset/, get(path)["content-type"], path) }
  end

  it "follows links that stay inside the root" do
    assert_equal SiteFilesTest::TEXT, get("/inside-link.txt").body
  end

  it "merges doubled slashes and resolves dots" do
    ["//text.txt", "/dir//../text.txt", "/./text.txt", "/dir/%2e%2e/text.txt"].each { |path| assert_equal SiteFilesTest::TEXT, get(path).body, path }
  end

  { "/%00" => 400, "/%zz" => 400, "/text.txt%" => 400, "/%FF" => 400, "/../x" => 400, "/dir%2Finside.txt" => 404, "/.hidden" => 404, "/socket.txt" => 404, "/loop.txt" => 404, "/out.txt" => 404,
    "/noindex/" => 404, "/#{'n' * 300}" => 404 }.each do |path, status|
    it "says #{status} to #{path[0, 30]}" do
      assert_status status, get(path)
    end
  end

  it "answers several ranges in parts, and merges those that touch" do
    response = get("/text.txt", headers: { "Range" => "bytes=0-9,5-14,100-109" })
    assert_status 206, response
    assert_equal [[0, 14], [100, 109]], (ByteRanges.parts(response).map { |part| [part.from, part.to] })
  end

  it "says nothing of its own paths in errors" do
    %w[/missing /%00 /.hidden /out.txt /socket.txt].each { |path| refute_includes get(path).body, server.base }
  end
end
