# frozen_string_literal: true

# `firebrick bench --sse` and `--ws`: connections that are held, against an app and against servers that misbehave.

require "json"
require "open3"
require "support/bench_case"
require "support/tls_case"

# /events: an event each 20 ms, with ids; ?n=3 ends the stream after so many, with a pause of 50 ms before the next one.
# /echo: a WebSocket that greets, pings, and returns each message; "bye" closes it with 4001.
BENCH_HELD_APP = <<~'RUBY'
  require "digest/sha1"

  def frame(opcode, payload)
    length = payload.bytesize
    (length < 126 ? [0x80 | opcode, length].pack("CC") : [0x80 | opcode, 126, length].pack("CCn")) + payload.b
  end

  def message(io)
    first, second = io.readpartial(2).bytes
    length = second & 0x7f
    length = io.read(2).unpack1("n") if length == 126
    mask = io.read(4).bytes
    [first & 15, io.read(length).bytes.each_with_index.map { |byte, at| byte ^ mask[at % 4] }.pack("C*")]
  end

  echo = lambda do |io|
    io.write(frame(1, "welcome"), frame(9, "are you there"))
    loop do
      opcode, text = message(io)
      break io.write(frame(8, [1000].pack("n"))) if opcode == 8
      next if opcode == 10
      break io.write(frame(8, [4001].pack("n"))) if text == "bye"
      io.write(frame(1, text))
    end
  rescue EOFError, SystemCallError
    nil
  ensure
    io.close
  end

  SEEN, LOCK = [], Mutex.new
  run lambda { |env|
    case env["PATH_INFO"]
    when "/events"
      last = env["HTTP_LAST_EVENT_ID"]
      LOCK.synchronize { SEEN << last } if last
      most = env["QUERY_STRING"][/n=(\d+)/, 1]&.to_i
      body = Enumerator.new do |out|
        out << "retry: 50\n: hello\n\n"
        (1..(most || 10_000)).each { |n| sleep 0.02; out << "id: #{last.to_i + n}\ndata: #{n}\n\n" }
      end
      [200, { "content-type" => "text/event-stream", "cache-control" => "no-store" }, body]
    when "/seen" then [200, {}, [LOCK.synchronize { SEEN.map(&:to_i).max.to_s }]]
    when "/page" then [200, { "content-type" => "text/html" }, ["<p>no stream</p>"]]
    when "/none" then [204, {}, []]
    when "/echo"
      next [403, {}, []] unless env["HTTP_ORIGIN"] == "#{env['rack.url_scheme']}://#{env['HTTP_HOST']}"
      accept = [Digest::SHA1.digest("#{env['HTTP_SEC_WEBSOCKET_KEY']}258EAFA5-E914-47DA-95CA-C5AB0DC85B11")].pack("m0")
      [101, { "connection" => "Upgrade", "upgrade" => "websocket", "sec-websocket-accept" => accept, "rack.hijack" => ->(io) { Thread.new { echo.(io) } } }, []]
    else [404, {}, []]
    end
  }
RUBY

class BenchHeldTest < BenchCase
  quiet! 20

  shared_server app: BENCH_HELD_APP, workers: 1, threads: "12:12"

  def held(path, *args)
    result("#{server.url.chomp('/')}#{path}", *args)
  end

  def ws(*args)
    held("/echo", "--ws", *args)
  end

  it "holds event streams, and counts events and their gaps" do
    found = held("/events", "--sse", "-c", 5, "-d", "2s")
    outcome, summary = found.values_at("outcome", "summary")
    assert_equal [5, 5, 0, 0], outcome.values_at("opened", "held_at_end", "closed_by_server", "reconnects")
    assert_equal({}, outcome["errors"])
    assert_in_delta 5 * 50, summary["received_per_s"], 100
    assert_operator summary["gaps_ms"]["p50"], :>=, 15
    assert_operator summary["first_ms"]["p50"], :>=, 20, "the first event comes after 20 ms"
    assert_operator summary["first_ms"]["p50"], :>, summary["open_ms"]["p50"]
    assert_equal(outcome["received"], outcome["course"].sum { |second| second["received"] })
    assert_equal([5, 5], outcome["course"].map { |second| second["held"] })
  end

  it "connects again after the pause of the server, with the id of the last event" do
    found = held("/events?n=4", "--sse", "-c", 2, "-d", "2s")["outcome"]
    # Each stream takes 80 ms, and 50 ms pass before the next one.
    assert_operator found["closed_by_server"], :>=, 8
    assert_in_delta found["closed_by_server"], found["reconnects"], 4
    assert_equal({}, found["errors"])
    assert_operator get("/seen").body.to_i, :>=, 12, "ids go on from stream to stream"
  end

  it "says why a response is no event stream" do
    { "/page" => %r{the content type is "text/html" instead of text/event-stream}, "/nothing" => /status 404 instead of 200/ }.each do |path, why|
      _, err, code = bench("#{server.url.chomp('/')}#{path}", "--sse", "-c", 2, "-d", "1s")
      assert_equal 1, code
      assert_match why, err
    end
    assert_equal 2, held("/none", "--sse", "-c", 2, "-d", "1s").dig("outcome", "stopped_by_server")
  end

  it "sends messages over WebSockets after each reply, and answers pings" do
    found = ws("-c", 4, "-d", "1s", "--send", "from ${user}, message ${turn}", "--first", "subscribe", "--think", "5ms")
    outcome = found["outcome"]
    assert_equal [4, 4], outcome.values_at("opened", "held_at_end")
    assert_equal({}, outcome["errors"])
    assert_operator outcome["sent"], :>, 20
    assert_in_delta outcome["sent"], outcome["received"], 8, "each is returned; a greeting is no reply"
    assert_equal 0, outcome["unanswered"]
    assert_operator found.dig("summary", "round_trip_ms", "p50"), :>, 0
    assert_equal({}, outcome["close_codes"], "at the end the client closes")
  end

  it "sends messages at a rate on each connection" do
    outcome = ws("-c", 5, "-d", "2s", "--send", "x" * 200, "--rate", "20/s")["outcome"]
    assert_in_delta 200, outcome["sent"], 30
    assert_in_delta outcome["sent"], outcome["received"], 20
    assert_operator outcome["sent_bytes"], :>, outcome["sent"] * 200
  end

  it "counts replies that do not come, and close codes" do
    outcome = ws("-c", 2, "-d", "2s", "--send", "hello", "--reply", "match:^good", "--timeout", "200ms")["outcome"]
    assert_in_delta 18, outcome["unanswered"], 8
    outcome = ws("-c", 2, "-d", "3s", "--send", "bye", "--rate", "5/s")["outcome"]
    assert_operator outcome.dig("close_codes", "4001"), :>=, 2
    assert_operator outcome["reconnects"], :>=, 1
  end

  it "speaks ws:// without a flag, and says when a server has no TLS" do
    out, err, code = bench(server.url.sub("http", "ws") + "echo", "-c", 2, "-d", "1s", "--send", "a", "--format", "json")
    assert_equal 0, code, err
    assert_equal "firebrick bench --ws", JSON.parse(out)["kind"]
    _, err, code = bench(server.url.sub("http", "wss") + "echo", "-c", 1, "-d", "1s", "-k")
    assert_equal 1, code
    assert_match(/the answer is not TLS/, err)
  end

  it "writes every format, and fails on conditions" do
    in_folder do |dir|
      url = "#{server.url}echo"
      out, err, code = bench(url, "--ws", "--send", "a", "--rate", "50/s", "-c", 2, "-d", "1s", "--html", "r.html", "--csv", "r.csv", "--json", "r.json",
                             "--fail-if", "p99<1h", "--fail-if", "errors>0", dir: dir)
      assert_equal 1, code
      assert_match(/failed: p99<1h: it is /, err)
      refute_match(/errors>0/, err)
      ["held", "messages", "sent", "round trip", "to open"].each { |line| assert_match(/^  #{line} +[\d,]+/, out) }
      assert_match(%r{2 WebSockets, each sends 50/s messages of 1 B}, out)
      assert_match(/\A0,2,0,\d+,\d+,0\z/, File.readlines("#{dir}/r.csv", chomp: true)[1])
      assert_match(/connections held.*round trip/m, File.read("#{dir}/r.html"))
      assert_equal 2, JSON.parse(File.read("#{dir}/r.json")).dig("plan", "connections")
    end
  end

  it "explains flags that do not fit" do
    {
      %w[--sse --ws] => /one kind of connections/, %w[--sse --rate 5/s] => /--sse holds connections open.*--rate/, %w[--sse --send x] => /--send/,
      %w[--sse --http 2] => %r{needs HTTP/1\.1}, %w[--ws --streams 4] => %r{needs HTTP/1\.1}, %w[--ws --find p95<1s] => /--find/, %w[--send x] => /--send requires --ws/,
      %w[--ws --rate 5/s] => /--rate requires --send/, %w[--ws --send x --reply none] => /--reply none requires --rate/,
      %w[--ws --send x --reply some] => /expected echo, next, none or match:REGEX/, %w[--ws --format wrk] => /cannot show --ws/,
      %w[--sse --fail-if service.p99>1s] => /no value with --sse/, %w[--ws --fail-if p99>1s] => /round trips need --send/,
      %w[--sse ws://localhost/] => %r{--sse needs http://}
    }.each do |args, why|
      _, err, code = bench(server.url, *args)
      assert_equal 2, code, args.inspect
      assert_match why, err
    end
  end

  it "notices servers that break the protocol" do
    {
      "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\nzz" => ["--sse", /invalid chunk size/],
      "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n5\r\ndata:" => ["--sse", /in the middle of the stream/],
      "HTTP/1.1 101 Switching\r\nupgrade: websocket\r\nsec-websocket-accept: x\r\n\r\n" => ["--ws", /does not answer the key/],
      "" => ["--ws", /without a response/]
    }.each do |bytes, (kind, why)|
      listener = TCPServer.new("127.0.0.1", 0)
      server = Thread.new do
        loop do
          client = listener.accept
          client.readpartial(4096)
          client.write(bytes)
          client.close
        end
      rescue IOError
        nil
      end
      out, err, = bench("http://127.0.0.1:#{listener.addr[1]}/", kind, "-c", 1, "-d", "1s")
      assert_match why, out + err
    ensure
      listener.close
      server.join
    end
  end
end

class BenchHeldTlsTest < TlsCase
  quiet!

  { "wss" => ["echo", "--send", "a"], "https" => ["events", "--sse"] }.each do |scheme, (path, *flags)|
    it "holds connections of #{scheme}://" do
      own = secure(app: BENCH_HELD_APP, threads: "8:8")
      command = [Server.binary, "bench", "#{scheme}://127.0.0.1:#{own.port}/#{path}", "-c", "3", "-d", "1s", "-k", *flags, "--format", "json"]
      out, err, status = Open3.capture3(Server.ruby_files, "timeout", "60", *command)
      assert status.success?, err
      outcome = JSON.parse(out)["outcome"]
      assert_equal [3, 3, {}], outcome.values_at("opened", "held_at_end", "errors")
      assert_operator outcome["received"], :>, 20
    end
  end
end
