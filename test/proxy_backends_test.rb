# frozen_string_literal: true

# Backends that violate HTTP, stall or disconnect, behind `proxies`. The client must get the correct result: the response if
# there is a valid one, 502 or 504 if there is none, a cut connection if the fault shows after the head. And whatever a
# backend did, the next request gets its own response.
#
# Every kind of fault once; what a head or a chunk may be is asked in server/protocols/h1, each fault with its reason in the log in
# server/content/proxy/tests/it/hostile.rs.

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
    "sends something other than HTTP" => ["hello, world\r\n\r\n", :refused],
    "responds in TLS" => ["\x16\x03\x01\x02\x00\x01\x00\x01\xFC\x03\x03".b * 20, :refused],
    "never ends its status line" => [->(conn) { endless(conn, "HTTP/1.1 200 ", "A" * 10_000) }, :refused],
    "never ends its head" => [->(conn) { endless(conn, OK, "X-Filler: #{'a' * 1000}\r\n") }, :refused],
    "has a field of a megabyte" => ["#{OK}X-Long: #{'a' * 1_000_000}\r\nContent-Length: 5\r\n\r\nhello", :refused],
    "has twenty thousand fields" => ["#{OK}#{(1..20_000).map { |i| "X-#{i}: a\r\n" }.join}Content-Length: 5\r\n\r\nhello", :refused],
    "folds a field over two lines" => ["#{OK}X-A: a\r\n b\r\nContent-Length: 5\r\n\r\nhello", [:refused, "hello"]],
    "sends its head in single bytes" => [->(conn) { conn.socket.setsockopt(:TCP, :NODELAY, true) && HELLO.each_char { |byte| conn.socket.write_nonblock(byte) } }, "hello"],
    "sends its head without end, slowly" => [->(conn) { endless(conn, OK, "X", pause: 0.2) }, LATE],
    "has two lengths that differ" => ["#{OK}Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!", :refused],
    "has a length and chunks" => ["#{OK}Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", [:refused, "hello"]],
    "has an invalid chunk size" => ["#{CHUNKED}xyz\r\nhello\r\n0\r\n\r\n", [CUT]],
    "never ends a chunk extension" => [->(conn) { endless(conn, "#{CHUNKED}5;", "a" * 10_000) }, [CUT]],
    "never ends its trailers" => [->(conn) { endless(conn, "#{CHUNKED}5\r\nhello\r\n0\r\n", "X-Trailer: #{'a' * 1000}\r\n") }, [CUT, "hello"]],
    "closes without a response" => [:close.to_proc, :refused],
    "closes within its body" => [->(conn) { conn.write("#{OK}Content-Length: 50000\r\n\r\n#{'x' * 20_000}") && conn.close }, [CUT]],
    "resets within its body" => [->(conn) { conn.write("#{OK}Content-Length: 50000\r\n\r\n#{'x' * 20_000}") && sleep(0.1) && conn.reset! }, [CUT]],
    "stalls within its head" => [->(conn) { conn.write("#{OK}Content-Le") && conn.ended? }, LATE],
    "stalls within its body" => [->(conn) { conn.write("#{OK}Content-Length: 50000\r\n\r\n#{'x' * 20_000}") && conn.ended? }, [CUT]],
    "sends a second response a little later" => [->(conn) { conn.write(HELLO) && sleep(0.05) && conn.write("#{OK}Content-Length: 8\r\n\r\npoisoned") }, "hello"],
    "sends a body with a 204" => ["HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello", [204, :refused]],
    "sends a body to HEAD" => [HELLO, ["", :refused], "HEAD"],
    "switches protocols without a request" => ["HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n\x81\x05hello".b, :refused],
    "sends 100 without end" => [->(conn) { endless(conn, "", "HTTP/1.1 100 Continue\r\n\r\n" * 10, pause: 0.001) }, :refused],
    "sends early hints without end" => [->(conn) { endless(conn, "", "HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n" * 10, pause: 0.001) }, :refused],
    "ends its body with the connection" => [->(conn) { conn.write("#{OK}Connection: close\r\n\r\nhello") && conn.close }, "hello"],
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
    indexes = ODD.keys.each_index.select { |i| ODD.values[i][1] == :refused && ODD.values[i][0].is_a?(String) }.first(5)
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
