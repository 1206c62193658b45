# frozen_string_literal: true

# Messages that two parsers could read differently. Each is refused, the connection is closed, and no byte of it is read
# as another request: every attack is followed by a request for /smuggled, which the app must never see.

require "support/case"

class SmugglingTest < Case
  parallel!

  shared_server threads: "1:5", app: <<~'RUBY'
    SEEN = Queue.new
    run lambda { |env|
      path = env["PATH_INFO"]
      if path == "/seen"
        paths = Array.new(SEEN.size) { SEEN.pop }.each { |one| SEEN << one }
        [200, { "content-type" => "text/plain" }, [paths.join("\n")]]
      else
        SEEN << "#{path} #{env["HTTP_X_ATTACK"]}"
        body = env["rack.input"] ? env["rack.input"].read : ""
        keys = env.keys.grep(/\A[A-Z_]+\z/).sort.join(" ")
        [200, { "content-type" => "text/plain", "x-keys" => keys, "x-length" => env["CONTENT_LENGTH"].to_s }, [body]]
      end
    }
  RUBY

  # A POST with these field lines, exactly as sent.
  def self.post(*lines, body: "0\r\n\r\n")
    "POST /attack HTTP/1.1\r\nHost: x\r\n#{lines.map { |line| "#{line}\r\n" }.join}\r\n".b + body.b
  end

  def self.get(*lines)
    "GET /attack HTTP/1.1\r\nHost: x\r\n".b + lines.map { |line| line.b + "\r\n".b }.join + "\r\n".b
  end

  def self.line(request_line)
    request_line.b + "\r\nHost: x\r\n\r\n".b
  end

  def self.coded(bytes)
    post("Transfer-Encoding: chunked", body: bytes)
  end

  def self.host(*lines)
    "GET /attack HTTP/1.1\r\n#{lines.map { |line| "#{line}\r\n" }.join}\r\n".b
  end

  TE = "Transfer-Encoding: chunked"

  # description of the attack => [its bytes, the accepted statuses: the first is Firebrick's, others may choose another (400)]
  ATTACKS = {
    # lengths
    "Content-Length before Transfer-Encoding" => [post("Content-Length: 5", TE)],
    "Transfer-Encoding before Content-Length" => [post(TE, "Content-Length: 5")],
    "Content-Length: 0 with Transfer-Encoding" => [post("Content-Length: 0", TE)],
    "two differing lengths" => [post("Content-Length: 5", "Content-Length: 6", body: "12345")],
    "two differing lengths, one 0" => [post("Content-Length: 0", "Content-Length: 5", body: "12345")],
    "two equal lengths" => [post("Content-Length: 5", "Content-Length: 5", body: "12345")],
    "a list of equal lengths" => [post("Content-Length: 5, 5", body: "12345")],
    "a list of differing lengths" => [post("Content-Length: 5, 6", body: "12345")],
    "a length with a trailing comma" => [post("Content-Length: 5,", body: "12345")],
    "a length with +" => [post("Content-Length: +5", body: "12345")],
    "a negative length" => [post("Content-Length: -5", body: "12345")],
    "minus zero" => [post("Content-Length: -0", body: "")],
    "a hexadecimal length" => [post("Content-Length: 0x5", body: "12345")],
    "a length with spaces inside" => [post("Content-Length: 5 5", body: "12345")],
    "a length with spaces around and inside" => [post("Content-Length:  5 5", body: "12345")],
    "an empty length" => [post("Content-Length: ", body: "")],
    "a length with a letter" => [post("Content-Length: 5a", body: "12345")],
    "a fractional length" => [post("Content-Length: 5.0", body: "12345")],
    "an exponent" => [post("Content-Length: 1e1", body: "1234567890")],
    "a length with _" => [post("Content-Length: 1_0", body: "1234567890")],
    "a quoted length" => [post('Content-Length: "5"', body: "12345")],
    "a length with a vertical tab" => [post("Content-Length: \v5", body: "12345")],
    "a length of more than 64 bits" => [post("Content-Length: 18446744073709551621", body: "12345"), [400, 413]],
    "a length of forty digits" => [post("Content-Length: #{'9' * 40}", body: "12345"), [400, 413]],
    "full-width digits" => [post("Content-Length: \u{ff15}", body: "12345")],

    # codings
    "chunked twice in one field" => [post("Transfer-Encoding: chunked, chunked")],
    "chunked twice in two fields" => [post(TE, TE)],
    "chunked not last" => [post("Transfer-Encoding: chunked, gzip")],
    "chunked not last, in two fields" => [post(TE, "Transfer-Encoding: gzip")],
    "chunked and identity" => [post("Transfer-Encoding: chunked, identity"), [400, 501]],
    "identity" => [post("Transfer-Encoding: identity"), [501, 400]],
    "gzip alone" => [post("Transfer-Encoding: gzip"), [501, 400]],
    "gzip before chunked" => [post("Transfer-Encoding: gzip, chunked"), [501]],
    "an unknown coding that ends in chunked" => [post("Transfer-Encoding: xchunked"), [501, 400]],
    "an unknown coding that begins with chunked" => [post("Transfer-Encoding: chunkedx"), [501, 400]],
    "chunked with a parameter" => [post("Transfer-Encoding: chunked;q=1"), [400, 501]],
    "a quoted coding" => [post('Transfer-Encoding: "chunked"'), [400, 501]],
    "an empty coding" => [post("Transfer-Encoding: "), [400, 501]],
    "a vertical tab before chunked" => [post("Transfer-Encoding: \vchunked"), [400, 501]],
    "a form feed after chunked" => [post("Transfer-Encoding: chunked\f"), [400, 501]],
    "a no-break space before chunked" => [post("Transfer-Encoding: \xA0chunked".b), [400, 501]],
    "a folded coding" => [post("Transfer-Encoding:\r\n chunked")],
    "an unknown coding with a length" => [post("Transfer-Encoding: xchunked", "Content-Length: 5", body: "12345"), [501, 400]],
    "a coding on HTTP/1.0" => ["POST /attack HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\n#{TE}\r\n\r\n0\r\n\r\n"],
    "a coding with a length on HTTP/1.0" => ["POST /attack HTTP/1.0\r\nHost: x\r\n#{TE}\r\nContent-Length: 5\r\n\r\n0\r\n\r\n"],

    # line ends
    "a bare LF after the request line" => ["GET /attack HTTP/1.1\nHost: x\r\n\r\n"],
    "a bare LF after a field" => ["GET /attack HTTP/1.1\r\nHost: x\nX-A: b\r\n\r\n"],
    "a bare LF at the end of the head" => ["GET /attack HTTP/1.1\r\nHost: x\r\n\n"],
    "bare LFs everywhere" => ["GET /attack HTTP/1.1\nHost: x\n\n"],
    "a bare LF before the request line" => ["\nGET /attack HTTP/1.1\r\nHost: x\r\n\r\n"],
    "a bare CR before the request line" => ["\rGET /attack HTTP/1.1\r\nHost: x\r\n\r\n"],
    "a bare CR in the request line" => ["GET /attack\rHTTP/1.1\r\nHost: x\r\n\r\n"],
    "a bare CR after the request line" => ["GET /attack HTTP/1.1\rHost: x\r\n\r\n"],
    "a bare CR in a value" => [get("X-A: b\rX-C: d")],
    "a bare CR at the end of a value" => [get("X-A: b\r")],
    "a bare CR in a name" => [get("X-\rA: b")],
    "a bare CR at the end of the head" => ["GET /attack HTTP/1.1\r\nHost: x\r\n\rX"],

    # fields
    "a space before the colon" => [get("X-A : b")],
    "a tab before the colon" => [get("X-A\t: b")],
    "a space before the colon of Content-Length" => [post("Content-Length : 5", body: "12345")],
    "a space before the colon of Transfer-Encoding" => [post("Transfer-Encoding : chunked", "Content-Length: 5")],
    "a space before the first field" => ["GET /attack HTTP/1.1\r\n Host: x\r\n\r\n"],
    "a folded line with a space" => [get("X-A: b", " c")],
    "a folded line with a tab" => [get("X-A: b", "\tContent-Length: 5")],
    "a line of spaces" => [get("X-A: b", "  ")],
    "NUL in a value" => [get("X-A: b\0c")],
    "NUL in a name" => [get("X\0A: b")],
    "NUL in the target" => [line("GET /att\0ack HTTP/1.1")],
    "an empty name" => [get(": b")],
    "a line without a colon" => [get("X-A")],
    "a space inside a name" => [get("X A: b")],
    "a bracket in a name" => [get("X[A]: b")],
    "a slash in a name" => [get("X/A: b")],
    "a quote in a name" => [get("X\"A: b")],
    "a byte above 127 in a name" => [get("X-\xE9: b".b)],
    "DEL in a value" => [get("X-A: b\x7Fc")],
    "DEL in a name" => [get("X\x7FA: b")],

    # chunks
    "an empty chunk size" => [coded("\r\n12345\r\n0\r\n\r\n")],
    "a chunk size that consists of an extension" => [coded(";a=b\r\n12345\r\n0\r\n\r\n")],
    "a negative chunk size" => [coded("-5\r\n12345\r\n0\r\n\r\n")],
    "a chunk size with +" => [coded("+5\r\n12345\r\n0\r\n\r\n")],
    "a chunk size with 0x" => [coded("0x5\r\n12345\r\n0\r\n\r\n")],
    "a chunk size with _" => [coded("1_0\r\n1234567890123456\r\n0\r\n\r\n")],
    "a chunk size that is not a number" => [coded("g\r\n12345\r\n0\r\n\r\n")],
    "a chunk size of 17 digits" => [coded("#{'f' * 17}\r\n12345\r\n0\r\n\r\n"), [400, 413]],
    "a chunk size of 17 digits, zeros first" => [coded("#{'0' * 16}5\r\n12345\r\n0\r\n\r\n"), [400, 413]],
    "a chunk size that overflows to 5" => [coded("10000000000000005\r\n12345\r\n0\r\n\r\n"), [400, 413]],
    "the largest chunk size" => [coded("#{'f' * 16}\r\n12345\r\n0\r\n\r\n"), [413, 400]],
    "a space before a chunk size" => [coded(" 5\r\n12345\r\n0\r\n\r\n")],
    "a space after a chunk size" => [coded("5 \r\n12345\r\n0\r\n\r\n")],
    "a space inside a chunk size" => [coded("0 5\r\n12345\r\n0\r\n\r\n")],
    "a bare LF after a chunk size" => [coded("5\n12345\r\n0\r\n\r\n")],
    "a bare CR after a chunk size" => [coded("5\r12345\r\n0\r\n\r\n")],
    "a bare LF in a chunk extension" => [coded("5;a=\nb\r\n12345\r\n0\r\n\r\n")],
    "a bare CR in a chunk extension" => [coded("5;a=\rb\r\n12345\r\n0\r\n\r\n")],
    "NUL in a chunk extension" => [coded("5;a=\0b\r\n12345\r\n0\r\n\r\n")],
    "a chunk shorter than its size" => [coded("6\r\n12345\r\n0\r\n\r\n")],
    "a chunk longer than its size" => [coded("4\r\n12345\r\n0\r\n\r\n")],
    "no CRLF after a chunk" => [coded("5\r\n123450\r\n\r\n")],
    "a bare LF after a chunk" => [coded("5\r\n12345\n0\r\n\r\n")],
    "a bare LF after the last chunk" => [coded("5\r\n12345\r\n0\n\r\n")],
    "a bare LF after the trailers" => [coded("5\r\n12345\r\n0\r\n\n")],
    "a trailer without a colon" => [coded("0\r\nnonsense\r\n\r\n")],
    "a space before a trailer's colon" => [coded("0\r\nX-A : b\r\n\r\n")],
    "a folded trailer" => [coded("0\r\nX-A: b\r\n c\r\n\r\n")],
    "a bare LF in the trailers" => [coded("0\r\nX-A: b\nX-C: d\r\n\r\n")],
    "NUL in a trailer" => [coded("0\r\nX-A: b\0\r\n\r\n")],

    # Host
    "no Host" => [host("X-A: b")],
    "two Hosts" => [host("Host: x", "Host: y")],
    "two equal Hosts" => [host("Host: x", "Host: x")],
    "a Host with a space" => [host("Host: x y")],
    "a Host with a path" => [host("Host: x/y")],
    "a Host with user information" => [host("Host: user@x")],
    "a list of Hosts" => [host("Host: x, y")],
    "a Host with a port that is not a number" => [host("Host: x:port")],
    "a Host with a port too large" => [host("Host: x:99999")],
    "a Host with two ports" => [host("Host: x:80:80")],
    "a Host with an open bracket" => [host("Host: [::1")],
    "a Host with a query" => [host("Host: x?y")],
    "a Host with a fragment" => [host("Host: x#y")],
    "a Host with a backslash" => [host("Host: x\\y")],
    "a Host with a byte above 127" => [host("Host: \xE9x".b)],
    "no Host beside an absolute target" => ["GET http://x/attack HTTP/1.1\r\n\r\n"],

    # the request line
    "HTTP/2.0" => [line("GET /attack HTTP/2.0"), [505]],
    "HTTP/3.0" => [line("GET /attack HTTP/3.0"), [505]],
    "the preface of HTTP/2" => ["PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", [505, 400]],
    "HTTP/1.2" => [line("GET /attack HTTP/1.2"), [505, 400]],
    "HTTP/1.10" => [line("GET /attack HTTP/1.10"), [400, 505]],
    "HTTP/1.01" => [line("GET /attack HTTP/1.01"), [400, 505]],
    "HTTP/01.1" => [line("GET /attack HTTP/01.1"), [400, 505]],
    "HTTP/0.9" => [line("GET /attack HTTP/0.9"), [505, 400]],
    "HTTP/1" => [line("GET /attack HTTP/1"), [400, 505]],
    "HTTP/1,1" => [line("GET /attack HTTP/1,1"), [400, 505]],
    "HTTP/1.1 with a word after it" => [line("GET /attack HTTP/1.1 x")],
    "HTTP/1.1 with a space after it" => [line("GET /attack HTTP/1.1 ")],
    "lower-case http/1.1" => [line("GET /attack http/1.1")],
    "another protocol's name" => [line("GET /attack ICY/1.1"), [400, 505]],
    "no version" => [line("GET /attack")],
    "no target" => [line("GET HTTP/1.1")],
    "an empty target" => [line("GET  HTTP/1.1")],
    "two spaces before the target" => [line("GET  /attack HTTP/1.1")],
    "two spaces before the version" => [line("GET /attack  HTTP/1.1")],
    "a tab before the target" => [line("GET\t/attack HTTP/1.1")],
    "a tab before the version" => [line("GET /attack\tHTTP/1.1")],
    "a space before the method" => [line(" GET /attack HTTP/1.1")],
    "a space in the target" => [line("GET /att ack HTTP/1.1")],
    "a fragment in the target" => [line("GET /attack#fragment HTTP/1.1")],
    "a target that is not a path" => [line("GET attack HTTP/1.1")],
    "a method with a bracket" => [line("G(ET /attack HTTP/1.1")],
    "a method with a colon" => [line("GET: /attack HTTP/1.1")],
    "a control byte in the target" => [line("GET /att\x01ack HTTP/1.1")],
    "DEL in the target" => [line("GET /att\x7Fack HTTP/1.1")],
    "a scheme that is not HTTP" => ["GET ftp://x/attack HTTP/1.1\r\nHost: x\r\n\r\n"],
    "user information in an absolute target" => ["GET http://user:password@x/attack HTTP/1.1\r\nHost: x\r\n\r\n"],
    "an absolute target without a host" => ["GET http:///attack HTTP/1.1\r\nHost: x\r\n\r\n"],
    "binary nonsense" => ["\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n".b]
  }.merge(
    # every control byte in a value, except a tab
    ((1..31).to_a - [9, 10, 13]).to_h { |byte| [format("the control byte 0x%02x in a value", byte), [get("X-A: b#{byte.chr}c")]] }
  ).freeze

  ATTACKS.each_with_index do |(name, (bytes, statuses)), index|
    it "refuses #{name}" do
      refuse(bytes, statuses || [400], index) { |connection, attack| connection.write(attack) }
    end
  end

  it "refuses all of them in two pieces" do
    each_attack_concurrently do |bytes, statuses, number|
      refuse(bytes, statuses, "halves#{number}") do |connection, attack|
        half = attack.bytesize * (number % 7 + 1) / 9
        connection.write(attack.byteslice(0, half))
        sleep 0.02
        connection.write(attack.byteslice(half..))
      end
    end
  end

  it "refuses all of them in single bytes" do
    each_attack_concurrently do |bytes, statuses, number|
      refuse(bytes, statuses, "bytes#{number}") { |connection, attack| connection.write_slowly(attack) }
    end
  end

  it "responds to requests before the attack, and to none after it" do
    attack = self.class.post("Content-Length: 5", TE)
    connection = connect
    connection.write(request("GET", "/good") + attack + request("GET", "/smuggled", "X-Attack" => "pipelined"))
    assert_status 200, connection.read_response
    assert_status 400, connection.read_response
    assert_closed connection
    refute_seen "pipelined"
  end

  it "does not read a body that follows a refused head as a request" do
    connection = connect
    body = request("GET", "/smuggled", "X-Attack" => "body")
    connection.write("POST /attack HTTP/1.1\r\nHost: x\r\nContent-Length: #{body.bytesize}\r\nContent-Length: 0\r\n\r\n" + body)
    assert_status 400, connection.read_response
    assert_closed connection
    refute_seen "body"
  end

  # --- names with _, which the environment would confuse with others

  {
    "X_Forwarded_For" => "HTTP_X_FORWARDED_FOR", "X-Forwarded_Proto" => "HTTP_X_FORWARDED_PROTO", "Content_Length" => "CONTENT_LENGTH",
    "Transfer_Encoding" => "HTTP_TRANSFER_ENCODING", "_Private" => "HTTP__PRIVATE", "Content_Type" => "CONTENT_TYPE"
  }.each do |name, key|
    it "drops #{name}" do
      response = ask("POST /keys HTTP/1.1\r\nHost: x\r\n#{name}: 5\r\n\r\n")
      assert_status 200, response
      refute_includes response["x-keys"].split, key
    end
  end

  it "takes neither length nor coding from names with _" do
    connection = connect
    connection.write("POST /a HTTP/1.1\r\nHost: x\r\nContent_Length: 5\r\nTransfer_Encoding: chunked\r\nContent-Length: 3\r\n\r\nabc" + request("GET", "/b"))
    assert_equal "abc", connection.read_response.body
    assert_status 200, connection.read_response
    assert connection.silent?
  end

  it "passes names with _ with allow_underscore_headers" do
    firebrick_only
    own = start(app: 'run ->(env) { [200, { "content-type" => "text/plain" }, [env["HTTP_X_UNDER_SCORE"].to_s]] }',
                settings: { rack: { allow_underscore_headers: true } })
    assert_equal "seen", ask("GET / HTTP/1.1\r\nHost: x\r\nX_Under_Score: seen\r\n\r\n", to: own).body
  end

  # --- unusual, but valid

  {
    "a port in Host" => "GET /good HTTP/1.1\r\nHost: x:8080\r\n\r\n",
    "an empty port in Host" => "GET /good HTTP/1.1\r\nHost: x:\r\n\r\n",
    "an IPv6 Host" => "GET /good HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n",
    "_ in Host" => "GET /good HTTP/1.1\r\nHost: my_app.test\r\n\r\n",
    "no blank after the colon" => "GET /good HTTP/1.1\r\nHost:x\r\n\r\n",
    "spaces and tabs around a value" => "GET /good HTTP/1.1\r\nHost: \t x \t \r\nX-A:\tb\t\r\n\r\n",
    "a tab inside a value" => "GET /good HTTP/1.1\r\nHost: x\r\nX-A: b\tc\r\n\r\n",
    "an empty value" => "GET /good HTTP/1.1\r\nHost: x\r\nX-A:\r\nX-B: \r\n\r\n",
    "every token character in a name" => "GET /good HTTP/1.1\r\nHost: x\r\n!#$%&'*+-.^`|~0Aa: b\r\n\r\n",
    "a length with leading zeros" => "POST /good HTTP/1.1\r\nHost: x\r\nContent-Length: 0003\r\n\r\nabc",
    "brackets and bars in the query" => "GET /good?a[]=1|2&b={c} HTTP/1.1\r\nHost: x\r\n\r\n",
    "an absolute target" => "GET HTTP://X/good HTTP/1.1\r\nHost: x\r\n\r\n"
  }.each do |name, bytes|
    it "accepts #{name}" do
      connection = connect
      connection.write(bytes)
      assert_status 200, connection.read_response
      assert_alive connection
      assert connection.silent?(0.05)
    end
  end

  private

  # Sends the attack followed by a request; expects one refusal, the end, and that the app saw neither.
  def refuse(bytes, statuses, mark)
    mark = "attack-#{mark}"
    behind = request("GET", "/smuggled", "X-Attack" => mark)
    connection = connect
    yield connection, bytes.b.sub("\r\nHost: x\r\n".b, "\r\nHost: x\r\nX-Attack: #{mark}\r\n".b) + behind
    response = connection.read_response
    assert_status accepted(*statuses), response
    assert_includes response.connection, "close", "a refusal announces the end of the connection"
    assert_closed connection
    refute_seen mark
  ensure
    connection&.close
  end

  def refute_seen(mark)
    seen = get("/seen").body.lines(chomp: true).select { |line| line.end_with?(" #{mark}") }
    assert_empty seen, "the app received"
  end

  # Runs the block for each attack concurrently; reports all failures together.
  def each_attack_concurrently
    jobs = Queue.new
    ATTACKS.each_with_index { |(name, (bytes, statuses)), number| jobs << [name, bytes, statuses || [400], number] }
    failed = Queue.new
    Array.new(8) do
      Thread.new do
        while (name, bytes, statuses, number = jobs.pop(true) rescue nil)
          begin
            yield bytes, statuses, number
          rescue Minitest::Assertion, SystemCallError => e
            failed << "#{name}: #{e.message.lines.first(3).join}"
          end
        end
      end
    end.each(&:join)
    assert_empty Array.new(failed.size) { failed.pop }.join("\n")
  end
end
