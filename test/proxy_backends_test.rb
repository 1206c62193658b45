# frozen_string_literal: true

# Backends that violate HTTP, stall or disconnect, behind `proxies`. The client must get the correct result: the response if
# there is a valid one, 502 or 504 if there is none, a cut connection if the fault shows after the head. And whatever a
# backend did, the next request gets its own response.
#
# The tests were checked with haproxy 2.6 and nginx 1.22 (TEST_SERVER=haproxy, nginx). haproxy fails 9 of 107: statuses of two and
# four digits, 000 and 099, HTTP/2.0, a NUL in a value, a reset where the connection is the end, fields named by Connection. nginx
# fails 40: besides these most invalid lengths and codings, and everything that is not HTTP, which it reads as HTTP/0.9.

require "support/site_case"

class ProxyBackendsTest < SiteCase
  parallel!

  OK = "HTTP/1.1 200 OK\r\n"
  HELLO = "#{OK}Content-Length: 5\r\n\r\nhello".freeze
  CHUNKED = "#{OK}Transfer-Encoding: chunked\r\n\r\n".freeze

  # 504; other servers may respond with 502 to the same.
  LATE = ENV["TEST_SERVER"] ? :refused : :late

  # 502 if the fault arrives before the head is forwarded, a cut connection if it arrives later: a matter of timing.
  CUT = %i[refused broken].freeze

  # sentence => [what the backend sends, or does; the accepted outcomes, Firebrick's first; the method of the request]
  # Outcomes: a String is the body of a 200, a number another status, :refused is 502, LATE 504, :broken is a connection
  # that ends before the response is complete.
  ODD = {
    # --- not HTTP
    "sends something other than HTTP" => ["hello, world\r\n\r\n", :refused],
    "sends one line and closes" => [->(conn) { conn.write("hello\n") || conn.close }, :refused],
    "speaks HTTP/0.9" => [->(conn) { conn.write("<html>old</html>") && conn.close }, :refused],
    "speaks HTTP/2.0 in its status line" => ["HTTP/2.0 200 OK\r\nContent-Length: 5\r\n\r\nhello", :refused],
    "speaks HTTP/3" => ["HTTP/3 200\r\nContent-Length: 5\r\n\r\nhello", :refused],
    "speaks http in lower case" => ["http/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", :refused],
    "greets like SMTP" => ["220 mail.test ESMTP\r\n", :refused],
    "responds in TLS" => ["\x16\x03\x01\x02\x00\x01\x00\x01\xFC\x03\x03".b * 20, :refused],
    "sends NULs" => ["\0" * 5000, :refused],
    "begins with an empty line" => ["\r\n#{HELLO}", [:refused, "hello"]],
    # --- status lines
    "has a status of two digits" => ["HTTP/1.1 99 Low\r\nContent-Length: 5\r\n\r\nhello", :refused],
    "has a status of four digits" => ["HTTP/1.1 2000 High\r\nContent-Length: 5\r\n\r\nhello", :refused],
    "has the status 099" => ["HTTP/1.1 099 Low\r\nContent-Length: 5\r\n\r\nhello", :refused],
    "has the status 000" => ["HTTP/1.1 000 None\r\nContent-Length: 5\r\n\r\nhello", :refused],
    "has a status of letters" => ["HTTP/1.1 abc OK\r\nContent-Length: 5\r\n\r\nhello", :refused],
    "has no status" => ["HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", :refused],
    "has a negative status" => ["HTTP/1.1 -200 OK\r\nContent-Length: 5\r\n\r\nhello", :refused],
    "has neither a reason nor a space before it" => ["HTTP/1.1 200\r\nContent-Length: 5\r\n\r\nhello", "hello"],
    "has an empty reason" => ["HTTP/1.1 200 \r\nContent-Length: 5\r\n\r\nhello", "hello"],
    "has a reason in Latin-1" => ["HTTP/1.1 200 tr\xE8s bien\r\nContent-Length: 5\r\n\r\nhello".b, "hello"],
    "never ends its status line" => [->(conn) { endless(conn, "HTTP/1.1 200 ", "A" * 10_000) }, :refused],
    # --- heads
    "never ends its head" => [->(conn) { endless(conn, OK, "X-Filler: #{'a' * 1000}\r\n") }, :refused],
    "has a field of a megabyte" => ["#{OK}X-Long: #{'a' * 1_000_000}\r\nContent-Length: 5\r\n\r\nhello", :refused],
    "has twenty thousand fields" => ["#{OK}#{(1..20_000).map { |i| "X-#{i}: a\r\n" }.join}Content-Length: 5\r\n\r\nhello", :refused],
    "folds a field over two lines" => ["#{OK}X-A: a\r\n b\r\nContent-Length: 5\r\n\r\nhello", [:refused, "hello"]],
    "begins its head with a folded line" => ["#{OK} X-A: a\r\nContent-Length: 5\r\n\r\nhello", [:refused, "hello"]],
    "folds its length over two lines" => ["#{OK}Content-Length:\r\n 5\r\n\r\nhello", [:refused, "hello"]],
    "has a space before a colon" => ["#{OK}X-A : a\r\nContent-Length: 5\r\n\r\nhello", [:refused, "hello"]],
    "has a space before the colon of its length" => ["#{OK}Content-Length : 5\r\n\r\nhello", [:refused, "hello"]],
    "has a field without a colon" => ["#{OK}X-A\r\nContent-Length: 5\r\n\r\nhello", [:refused, "hello"]],
    "has a field without a name" => ["#{OK}: a\r\nContent-Length: 5\r\n\r\nhello", [:refused, "hello"]],
    "has a space in a name" => ["#{OK}X A: a\r\nContent-Length: 5\r\n\r\nhello", [:refused, "hello"]],
    "has brackets in a name" => ["#{OK}X(A): a\r\nContent-Length: 5\r\n\r\nhello", [:refused, "hello"]],
    "has a NUL in a value" => ["#{OK}X-A: a\0b\r\nContent-Length: 5\r\n\r\nhello", [:refused, "hello"]],
    "has a CR in a value" => ["#{OK}X-A: a\rX-B: b\r\nContent-Length: 5\r\n\r\nhello", [:refused, "hello"]],
    "has Latin-1 in a value" => ["#{OK}X-A: caf\xE9\r\nContent-Length: 5\r\n\r\nhello".b, "hello"],
    "ends its lines with LF alone" => ["HTTP/1.1 200 OK\nContent-Length: 5\n\nhello", [:refused, "hello"]],
    "sends its head in single bytes" => [->(conn) { conn.socket.setsockopt(:TCP, :NODELAY, true) && HELLO.each_char { |byte| conn.socket.write_nonblock(byte) } }, "hello"],
    "sends its head without end, slowly" => [->(conn) { endless(conn, OK, "X", pause: 0.2) }, LATE],
    # --- lengths
    "has two lengths that differ" => ["#{OK}Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!", :refused],
    "has two lengths in one field that differ" => ["#{OK}Content-Length: 5, 6\r\n\r\nhello!", :refused],
    "has the same length twice" => ["#{OK}Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello", [:refused, "hello"]],
    "has the same length twice in one field" => ["#{OK}Content-Length: 5, 5\r\n\r\nhello", [:refused, "hello"]],
    "has a negative length" => ["#{OK}Content-Length: -5\r\n\r\nhello", :refused],
    "has a length with a plus" => ["#{OK}Content-Length: +5\r\n\r\nhello", :refused],
    "has a hexadecimal length" => ["#{OK}Content-Length: 0x5\r\n\r\nhello", :refused],
    "has a length with letters after it" => ["#{OK}Content-Length: 5x\r\n\r\nhello", :refused],
    "has an empty length" => ["#{OK}Content-Length: \r\n\r\nhello", :refused],
    "has a length that overflows 64 bits" => ["#{OK}Content-Length: 18446744073709551621\r\n\r\nhello", :refused],
    "has a length of a hundred digits" => ["#{OK}Content-Length: #{'9' * 100}\r\n\r\nhello", :refused],
    # --- transfer codings
    "has a length and chunks" => ["#{OK}Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", [:refused, "hello"]],
    "has chunks within another coding" => [->(conn) { conn.write("#{OK}Transfer-Encoding: chunked, gzip\r\n\r\n5\r\nhello\r\n0\r\n\r\n") && conn.close }, [CUT]],
    "has an unknown coding" => [->(conn) { conn.write("#{OK}Transfer-Encoding: rot13\r\n\r\nhello") && conn.close }, [CUT]],
    "has chunks within chunks" => ["#{OK}Transfer-Encoding: chunked, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", [CUT]],
    "has chunks in HTTP/1.0" => [->(conn) { conn.write("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n") && conn.close }, [CUT, "hello"]],
    "has an invalid chunk size" => ["#{CHUNKED}xyz\r\nhello\r\n0\r\n\r\n", [CUT]],
    "has a negative chunk size" => ["#{CHUNKED}-5\r\nhello\r\n0\r\n\r\n", [CUT]],
    "has a chunk size with 0x" => ["#{CHUNKED}0x5\r\nhello\r\n0\r\n\r\n", [CUT]],
    "has a chunk size that overflows" => ["#{CHUNKED}10000000000000005\r\nhello\r\n0\r\n\r\n", [CUT]],
    "has an empty chunk size" => ["#{CHUNKED}\r\nhello\r\n0\r\n\r\n", [CUT]],
    "has no line end after a chunk" => ["#{CHUNKED}5\r\nhelloXX0\r\n\r\n", [CUT]],
    "has a chunk longer than its size" => ["#{CHUNKED}3\r\nhello\r\n0\r\n\r\n", [CUT]],
    "never ends a chunk extension" => [->(conn) { endless(conn, "#{CHUNKED}5;", "a" * 10_000) }, [CUT]],
    "never ends its trailers" => [->(conn) { endless(conn, "#{CHUNKED}5\r\nhello\r\n0\r\n", "X-Trailer: #{'a' * 1000}\r\n") }, [CUT, "hello"]],
    "has chunk extensions and trailers" => ["#{CHUNKED}2;a=b\r\nhe\r\n3;c=\"d\"\r\nllo\r\n0;e\r\nX-Trailer: 1\r\n\r\n", "hello"],
    "has chunk sizes with leading zeros" => ["#{CHUNKED}0005\r\nhello\r\n000\r\n\r\n", "hello"],
    # --- disconnects
    "closes without a response" => [:close.to_proc, :refused],
    "resets without a response" => [:reset!.to_proc, :refused],
    "closes within its head" => [->(conn) { conn.write("#{OK}Content-Le") && conn.close }, :refused],
    "closes within its body" => [->(conn) { conn.write("#{OK}Content-Length: 50000\r\n\r\n#{'x' * 20_000}") && conn.close }, [CUT]],
    "closes before its body" => [->(conn) { conn.write("#{OK}Content-Length: 5\r\n\r\n") && conn.close }, [CUT]],
    "resets within its body" => [->(conn) { conn.write("#{OK}Content-Length: 50000\r\n\r\n#{'x' * 20_000}") && sleep(0.1) && conn.reset! }, [CUT]],
    "closes within a chunk" => [->(conn) { conn.write("#{CHUNKED}64\r\nhello") && conn.close }, [CUT]],
    "closes between chunks" => [->(conn) { conn.write("#{CHUNKED}5\r\nhello\r\n") && conn.close }, [CUT]],
    "closes before the last line of its chunks" => [->(conn) { conn.write("#{CHUNKED}5\r\nhello\r\n0\r\n") && conn.close }, [CUT, "hello"]],
    "resets a body that ends with the connection" => [->(conn) { conn.write("#{OK}Connection: close\r\n\r\n#{'x' * 20_000}") && sleep(0.2) && conn.reset! }, [CUT]],
    "never responds" => [->(conn) { conn.ended? }, LATE],
    "stalls within its head" => [->(conn) { conn.write("#{OK}Content-Le") && conn.ended? }, LATE],
    "stalls within its body" => [->(conn) { conn.write("#{OK}Content-Length: 50000\r\n\r\n#{'x' * 20_000}") && conn.ended? }, [CUT]],
    "stalls within a chunk" => [->(conn) { conn.write("#{CHUNKED}64\r\nhello") && conn.ended? }, [CUT]],
    # --- more than requested
    "sends more than its length" => ["#{HELLO} and more", "hello"],
    "sends more after its last chunk" => ["#{CHUNKED}5\r\nhello\r\n0\r\n\r\nand more", "hello"],
    "sends a second response" => [HELLO * 2, "hello"],
    "sends a second response a little later" => [->(conn) { conn.write(HELLO) && sleep(0.05) && conn.write("#{OK}Content-Length: 8\r\n\r\npoisoned") }, "hello"],
    "sends a body with a 204" => ["HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello", [204, :refused]],
    "sends a body with a 304" => ["HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\nhello", [304, :refused]],
    "sends a length with a 304" => ["HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", 304],
    "sends a body to HEAD" => [HELLO, ["", :refused], "HEAD"],
    "sends chunks to HEAD" => ["#{CHUNKED}5\r\nhello\r\n0\r\n\r\n", ["", :refused], "HEAD"],
    "switches protocols without a request" => ["HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n\x81\x05hello".b, :refused],
    "sends an unexpected 100" => ["HTTP/1.1 100 Continue\r\n\r\n#{HELLO}", ["hello", :refused]],
    "sends early hints" => ["HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n#{HELLO}", ["hello", :refused]],
    "sends 100 without end" => [->(conn) { endless(conn, "", "HTTP/1.1 100 Continue\r\n\r\n" * 10, pause: 0.001) }, :refused],
    "sends early hints without end" => [->(conn) { endless(conn, "", "HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n" * 10, pause: 0.001) }, :refused],
    # --- unusual, but valid
    "ends its body with the connection" => [->(conn) { conn.write("#{OK}Connection: close\r\n\r\nhello") && conn.close }, "hello"],
    "speaks HTTP/1.0 without a length" => [->(conn) { conn.write("HTTP/1.0 200 OK\r\n\r\nhello") && conn.close }, "hello"],
    "speaks HTTP/1.0 and keeps the connection" => ["HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\nhello", "hello"],
    "announces close and keeps the connection" => ["#{OK}Connection: close\r\nContent-Length: 5\r\n\r\nhello", "hello"],
    "announces keep-alive and closes" => [->(conn) { conn.write("#{OK}Connection: keep-alive\r\nContent-Length: 5\r\n\r\nhello") && conn.close }, "hello"],
    "sends its body slowly" => [->(conn) { conn.write("#{OK}Content-Length: 5\r\n\r\n") && "hello".each_char { |byte| sleep(0.3) && conn.write(byte) } }, "hello"],
    "names hop-by-hop fields in Connection" => ["#{OK}Connection: X-Private\r\nX-Private: 1\r\nKeep-Alive: timeout=5\r\nContent-Length: 5\r\n\r\nhello", "hello"],
    "has an unknown status" => ["HTTP/1.1 299 Whatever\r\nContent-Length: 5\r\n\r\nhello", 299]
  }.freeze

  class << self
    # Writes until the proxy gives up; no proxy should accept it for ten seconds.
    def endless(conn, beginning, more, pause: 0)
      conn.write(beginning)
      stop = Clock.now + 10
      while Clock.now < stop
        conn.write(more)
        sleep(pause) if pause.positive?
      end
    end

    def backends
      @backends ||= ODD.keys.each_with_index.to_h { |name, i| ["/odd#{i}", odd_backend(*ODD[name])] }.merge("/early" => hasty_backend)
    end

    def server
      SharedServers.fetch(self) do
        timeouts = { connect_timeout: "1s", read_timeout: "1s", send_timeout: "1s" }
        proxies = backends.transform_values { |backend| { origin: backend.origin }.merge(timeouts) }
        (Peers.chosen || SiteServer).new(rules: { proxies: proxies }, proxies: backends.transform_values(&:port), files: { "public_html/index.html" => "home" })
      end
    end

    private

    def odd_backend(oddity, *)
      Backend.new do |conn, req|
        next conn.respond("good #{req.target}") if req.target.start_with?("/good")

        oddity.is_a?(String) ? conn.write(oddity) : oddity.call(conn)
      end
    end

    # A backend that responds before the request.
    def hasty_backend
      Backend.new(greeting: ->(conn) { conn.write("#{OK}Content-Length: 8\r\n\r\npoisoned") }) { |conn, req| conn.respond("good #{req.target}") }
    end
  end

  def setup
    skip "not a proxy of this suite" if Server.puma? || ENV["TEST_SERVER"] == "h2o"
  end

  # The result at the client, in the terms of the table.
  def outcome(method, path)
    connection = connect(deadline: 30)
    connection.write(request(method, path))
    response = connection.read_response(method)
    case response.status
    when 502 then [:refused, response]
    when 504 then [LATE, response]
    when 200 then [response.body, response]
    else [response.status, response]
    end
  rescue TruncatedResponse
    [connection.buffered.empty? || connection.buffered.start_with?("HTTP/1.1 200 ", "x", "h", "5") ? :broken : connection.buffered, nil]
  end

  def assert_own_responses(prefix)
    5.times do |i|
      response = get("#{prefix}/good?#{i}")
      assert_status 200, response
      assert_equal "good /good?#{i}", response.body
    end
  end

  ODD.each_with_index do |(name, (_, expected, method)), i|
    it "handles a backend that #{name}" do
      got, response = outcome(method || "GET", "/odd#{i}/x")
      assert_includes accepted(*expected), got, response&.raw_head
      %w[x-private keep-alive x-trailer].each { |field| assert_empty response.all(field) } if response
      sleep 0.3 if name.end_with?("later") # bytes that arrive while the connection is idle can be told from a response; earlier bytes cannot
      assert_own_responses "/odd#{i}"
    end
  end

  it "never sends an early response to another client" do
    5.times do |i|
      response = get("/early/good?#{i}")
      assert_status [200, 502], response
      assert_includes ["poisoned", "good /good?#{i}"], response.body if response.status == 200
      sleep 0.1 # bytes that arrive while the connection is idle can be told from a response; earlier bytes cannot
    end
  end

  it "keeps the client's connection after refusals" do
    indexes = ODD.keys.each_index.select { |i| ODD.values[i][1] == :refused && ODD.values[i][0].is_a?(String) }.first(10)
    connection = connect
    indexes.each do |i|
      connection.write(request("GET", "/odd#{i}/x"))
      assert_status accepted(502, 504), connection.read_response
      connection.write(request("GET", "/odd#{i}/good?1"))
      assert_equal "good /good?1", connection.read_response.body
    end
  end

  it "responds with 502 when the origin refuses connections" do
    gone = Backend.new.tap(&:close)
    own = another_site(rules: { proxies: { "/gone": { origin: gone.origin } } }, proxies: { "/gone" => gone.port }, files: { "public_html/index.html" => "home" })
    3.times { assert_status accepted(502, 503), get("/gone/x", to: own) }
  end

  it "responds with 504 when connecting times out" do
    full = Socket.new(:INET, :STREAM)
    full.bind(Socket.sockaddr_in(0, "127.0.0.1"))
    full.listen(0)
    waiting = Array.new(4) { Socket.new(:INET, :STREAM).tap { |one| one.connect_nonblock(full.local_address, exception: false) } }
    sleep 0.1
    own = another_site(rules: { proxies: { "/full": { origin: "http://127.0.0.1:#{full.local_address.ip_port}", connect_timeout: "1s" } } }, proxies: { "/full" => full.local_address.ip_port }, files: { "public_html/index.html" => "home" })
    assert_status accepted(504, 502, 503), get("/full/x", to: own)
  ensure
    [full, *waiting].compact.each(&:close)
  end

  it "tries the only backend again, however often it failed" do
    odd = ODD.keys.index("closes without a response")
    20.times { assert_status accepted(502, 503, 504), get("/odd#{odd}/x") }
    assert_equal "good /good?1", get("/odd#{odd}/good?1").body
  end
end
