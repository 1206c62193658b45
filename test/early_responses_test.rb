# frozen_string_literal: true

# Responses sent before the upload has ended: they arrive whole, some of the rest is read and dropped, and other requests of the
# connection do not wait for it (RFC 9113 section 8.1, RFC 9114 section 4.1).

require "support/http2_case"
require "support/certificates"
require "open3"
require "tempfile"

class EarlyResponsesTest < Http2Case
  include Certificates

  parallel!

  APP = %(run ->(env) { [200, { "content-type" => "text/plain" }, [(env["rack.input"]&.read || "").bytesize.to_s]] }\n)
  MAX = 100_000
  DROPPED = 256 << 10
  PIECE = 16 << 10

  shared_server app: APP, settings: { limits: { max_body: MAX } }

  def frames(stream, count)
    @client.data(stream, "u" * PIECE, end_stream: false) * count
  end

  # A request that is refused before its end, and whose response has arrived.
  def refused(headers = {}, sent: 0)
    @client ||= http2
    stream = @client.request("/up", method: "POST", headers:, body: :open)
    @client.write(frames(stream, sent)) if sent.positive?
    @client.read_until("a whole response") { @client.answers[stream].ended || @client.answers[stream].reset }
    answer = @client.answers[stream]
    assert_equal [413, true, nil], [answer.status, answer.ended, answer.reset]
    assert_includes answer.body, "413"
    stream
  end

  it "leaves the stream open for the rest of the upload, which may come to its end" do
    stream = refused({ "content-length" => MAX + PIECE * 3 })
    @client.write(frames(stream, 3) + @client.split(stream, "u" * (MAX - 1)))
    assert @client.alive?
    assert_nil @client.answers[stream].reset
    # The stream has ended: one more frame is an error, answered as such.
    @client.write(@client.data(stream, "late"))
    assert @client.ends?
    assert_equal :stream_closed, @client.goaway.code
  end

  it "resets the stream when more than a bound has come" do
    stream = refused({ "content-length" => 50 << 20 })
    @client.write(frames(stream, DROPPED / PIECE))
    assert @client.alive?
    assert_nil @client.answers[stream].reset
    @client.write(frames(stream, 1))
    @client.read_until("a reset") { @client.answers[stream].reset }
    assert_equal :no_error, @client.answers[stream].reset
    # Frames already in flight are ignored.
    @client.write(frames(stream, 5) + @client.data(stream, "end"))
    assert_equal "0", @client.get("/next").body
  end

  it "resets the stream when nothing more comes for a while" do
    stream = refused({ "content-length" => 50 << 20 })
    started = Clock.now
    assert_equal "0", @client.get("/meanwhile").body
    @client.read_until("a reset", within: 10) { @client.answers[stream].reset }
    assert_equal :no_error, @client.answers[stream].reset
    assert_operator Clock.now - started, :>, 1
    assert_equal "0", @client.get("/next").body
  end

  it "refuses an upload without a declared length in its middle" do
    stream = refused(sent: 8)
    @client.write(@client.data(stream, "the end"))
    assert_equal "5", @client.get("/next", method: "POST", body: "12345").body
    assert_nil @client.answers[stream].reset
  end

  it "gives the connection's window back, so that other uploads go on" do
    @client = http2
    # 32 MiB in total on a connection with a window of 4 MiB.
    128.times do
      stream = refused({ "content-length" => 1 << 20 })
      @client.write(frames(stream, 16) + @client.data(stream, "u" * 100))
    end
    assert @client.alive?
    given = @client.frames[:window_update]
    assert_operator given, :>=, 8, "the connection's window was opened again and again"
    assert_equal "90000", @client.get("/next", method: "POST", body: "u" * 90_000).body
  end

  it "does not keep a server that ends" do
    own = start(app: APP, settings: { limits: { max_body: MAX } })
    @client = http2(own)
    refused({ "content-length" => 50 << 20 })
    started = Clock.now
    own.signal("TERM")
    assert_equal 0, own.wait_exit
    assert_operator Clock.now - started, :<, 5
  end

  it "reaches curl, over HTTP/1.1 and HTTP/2, with and without a length" do
    cert, key = certificate(subject_alt_name: "IP:127.0.0.1")
    own = Server.new(app: APP, files: { "own.pem" => cert.to_pem, "own.key" => key.to_pem },
                     binds: ["ssl://127.0.0.1:0?cert=own.pem&key=own.key"], settings: { limits: { max_body: MAX } })
    @own_servers << own
    own.start
    Tempfile.create("upload") do |file|
      file.write("u" * 20_000_000)
      file.flush
      [%w[--http2 2], %w[--http1.1 1.1]].each do |option, version|
        [[], ["-H", "expect:"], ["-H", "transfer-encoding: chunked"], ["-H", "transfer-encoding: chunked", "-H", "expect:"]].each do |more|
          next if version == "2" && more.any? { |word| word.start_with?("transfer") }

          out, status = Open3.capture2("curl", "-sk", option, *more, "-T", file.path, "-X", "POST", "-w", " %{http_version} %{http_code}", "https://127.0.0.1:#{own.port}/up")
          assert_match(/413.* #{version} 413\z/m, out, "#{option} #{more}")
          assert status.success? || status.exitstatus == 55, "#{option} #{more}: #{status}"
        end
      end
      # From a pipe, so that the length is unknown.
      out, = Open3.capture2("curl", "-sk", "--http2", "-T", "-", "-X", "POST", "-w", " %{http_version} %{http_code}", "https://127.0.0.1:#{own.port}/up", stdin_data: "u" * 5_000_000)
      assert_match(/413.* 2 413\z/m, out)
    end
  end
end
