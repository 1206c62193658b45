# frozen_string_literal: true

# Fields of an app that contradict its response: Content-Length and Status.

require "support/case"

class ContentLengthTest < Case
  in_turn!

  APP = <<~'RUBY'
    class Pieces
      def initialize(*pieces) = @pieces = pieces
      def each(&) = @pieces.each(&)
    end

    class Slow < Pieces
      def each = @pieces.each { |piece| (yield piece; sleep 0.3) }
    end

    run lambda { |env|
      text = { "content-type" => "text/plain" }
      case env["PATH_INFO"]
      when "/array-short", "/counted-short", "/head-short" then [200, text.merge("content-length" => "10"), ["seven 7"]]
      when "/array-long" then [200, text.merge("content-length" => "3"), ["seven 7"]]
      when "/each-short" then [200, text.merge("content-length" => "10"), Pieces.new("seven", " 7")]
      when "/each-long" then [200, text.merge("content-length" => "3"), Pieces.new("seven", " 7")]
      when "/slow-short" then [200, text.merge("content-length" => "10"), Slow.new("seven", " 7")]
      when "/slow-long" then [200, text.merge("content-length" => "3"), Slow.new("s", "even 7")]
      when "/right" then [200, text.merge("content-length" => "7"), Pieces.new("seven", " 7")]
      when "/status" then [201, text.merge("status" => "404 Not Found", "Status" => "500", "x-status" => "kept"), ["seven 7"]]
      else [200, text, ["seven 7"]]
      end
    }
  RUBY

  shared_server app: APP

  def setup
    firebrick_only
  end

  def lines(path)
    server.stderr.lines.grep(/ #{path}:/)
  end

  def logged(path, pattern)
    connection = connect
    connection.write(request("GET", path))
    yield connection
    wait_until("a line about #{path}") { lines(path).any? }
    assert_status 200, get("/after")
    assert_equal 1, lines(path).size
    assert_match pattern, lines(path).first
  ensure
    connection&.close
  end

  it "logs a body that is shorter than its declared length" do
    logged("/array-short", /GET .*Content-Length 10\b.*\b7 bytes/, &:read_head)
    logged("/each-short", /GET .*Content-Length 10\b.*\b7 bytes/, &:read_head)
    logged("/slow-short", /GET .*Content-Length 10\b.*\b7 bytes/) do |connection|
      assert_equal "10", connection.read_head["content-length"]
      assert_equal "seven 7", connection.read_to_end
    end
  end

  it "logs a body that is longer than its declared length" do
    logged("/array-long", /GET .*Content-Length 3\b.*\b7 bytes/, &:read_head)
    logged("/each-long", /GET .*Content-Length 3\b.*\b(5|7) bytes/, &:read_head)
    logged("/slow-long", /GET .*Content-Length 3\b.*\b7 bytes/) do |connection|
      assert_equal "3", connection.read_head["content-length"]
      assert_equal "sev", connection.read_to_end
    end
  end

  it "counts it as a fault of the app" do
    before = server.stats.dig("failures", "app")
    get("/counted-short")
    wait_until("it is counted") { server.stats.dig("failures", "app") > before }
  end

  it "logs nothing about a correct length, a HEAD request or a 304" do
    get("/right")
    connection = connect
    connection.write(request("HEAD", "/head-short"))
    assert_status 200, connection.read_response("HEAD")
    assert_empty lines("/right")
    assert_empty server.stderr.lines.grep(/HEAD/)
  end

  it "does not send an app's Status field" do
    response = get("/status")
    assert_status 201, response
    assert_nil response["status"]
    assert_equal "kept", response["x-status"]
  end
end
