# frozen_string_literal: true

# HEAD in all versions of HTTP, from apps that give a body and no Content-Length: the head of the GET, no body, and a connection
# that serves the next request.

require "support/http2_client"
require "support/quic_go"
require "support/tls_case"

class HeadTest < TlsCase
  parallel!

  APP = <<~'RUBY'
    class Pieces
      def each = 3.times { |n| yield "piece #{n}\n" }
    end

    class Closing < Pieces
      def close = File.write("closed.log", "closed\n", mode: "a")
    end

    text = { "content-type" => "text/plain" }
    run lambda { |env|
      case env["PATH_INFO"]
      when "/array" then [200, text, ["some", " text"]]
      when "/empty" then [200, text, []]
      when "/pieces" then [200, text, Pieces.new]
      when "/closing" then [200, text, Closing.new]
      when "/lazy" then [200, text, Enumerator.new { |to| to << "one"; sleep 0.2; to << "two" }]
      when "/large" then [200, text, ["0123456789" * 300_000]]
      when "/large-pieces" then [200, text, Enumerator.new { |to| 300.times { to << "0123456789" * 1000 } }]
      when "/streaming" then [200, text, ->(io) { io.write("streamed"); io.close }]
      when "/declared" then [200, text.merge("content-length" => "77"), []]
      when "/missing" then [404, text, ["not here"]]
      else [200, text, [env["SERVER_PROTOCOL"]]]
      end
    }
  RUBY

  # The accepted Content-Lengths by path: a wrong one would be worse than none.
  LENGTHS = {
    "/array" => [nil, "9"], "/empty" => [nil, "0"], "/pieces" => [nil], "/closing" => [nil], "/lazy" => [nil],
    "/large" => [nil, "3000000"], "/large-pieces" => [nil], "/streaming" => [nil], "/declared" => ["77"], "/missing" => [nil, "8"]
  }.freeze

  def own
    @own ||= secure(app: APP)
  end

  def http2
    Http2Client.new(nil, connection: dial(own, context: ->(context) { context.alpn_protocols = ["h2"] }))
  end

  def each_path
    LENGTHS.each do |path, lengths|
      status, length = yield path
      assert_equal path == "/missing" ? 404 : 200, status, path
      assert_includes lengths, length, "Content-Length of #{path}"
    end
  end

  it "has no body over HTTP/1.1, and the connection stays" do
    connection = dial(own)
    each_path do |path|
      connection.write(request("HEAD", path))
      response = connection.read_response("HEAD")
      assert connection.silent?(0.05), "no body behind #{path}"
      [response.status, response["content-length"]]
    end
    connection.write(request("GET", "/next"))
    assert_equal "HTTP/1.1", connection.read_response.body
  end

  it "has no body over HTTP/2, and the connection stays" do
    client = http2
    each_path do |path|
      answer = client.get(path, method: "HEAD")
      assert_equal [nil, ""], [answer.reset, answer.body], path
      [answer.status, answer["content-length"]]
    end
    assert_equal ["HTTP/2", nil], [client.get("/next").body, client.goaway]
    assert_equal 1, client.frames[:data], "one frame of data, for the GET"
  end

  it "has no body over HTTP/3, and the connection stays" do
    skip "needs Go and quic-go: script/setup test" unless QuicGo.client
    each_path do |path|
      answers = QuicGo.ask(own, path, "-method", "HEAD", "-count", 3, "-then", "/next")
      assert_equal "HTTP/3", answers.pop["text"], "the request after HEAD #{path}"
      assert_equal [[nil, 0]], answers.map { |answer| answer.values_at("error", "length") }.uniq, path
      [answers.first["status"], answers.first["fields"]["Content-Length"]&.first]
    end
    assert_empty own.stderr.lines.grep(/HEAD|panic/)
  end

  it "closes the app's body" do
    versions = [-> { dial(own).tap { |one| one.write(request("HEAD", "/closing")) }.read_response("HEAD") },
                -> { http2.get("/closing", method: "HEAD") }]
    versions << -> { QuicGo.ask(own, "/closing", "-method", "HEAD") } if QuicGo.client
    versions.each.with_index(1) do |head, count|
      head.call
      assert wait_until { File.exist?(own.path("closed.log")) && File.readlines(own.path("closed.log")).size == count }, "HEAD #{count}"
    end
  end
end
