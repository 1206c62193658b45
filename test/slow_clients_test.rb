# frozen_string_literal: true

# Slow clients occupy no Ruby thread: a server with one thread keeps serving others, and memory stays bounded whatever a
# client sends or does not read.

require "openssl"
require "support/case"
require "support/other_clients"

SLOW_CLIENTS_APP = <<~'RUBY'
  require "openssl"

  class Pieces
    def initialize(count, piece) = (@count, @piece = count, piece)
    def each = @count.times { yield @piece }
  end

  class Endless
    def each
      File.write("produced.log", "0")
      (1..).each do |i|
        yield "x" * 65_536
        File.write("produced.log", i.to_s)
      end
    end

    def close = File.write("closed.log", "yes")
  end

  class Ticking
    def each = loop { yield "tick\n"; sleep 0.02 }
    def close = File.write("closed.log", "yes")
  end

  text = { "content-type" => "text/plain" }
  run lambda { |env|
    path = env["PATH_INFO"]
    File.write("seen.log", "#{path}\n", mode: "a")
    case path
    when "/large" then [200, text, ["0123456789" * 500_000]]
    when "/large-each" then [200, text, Pieces.new(500, "0123456789" * 1000)]
    when "/file" then [200, text, File.open("large.log", "rb")]
    when "/endless" then [200, text, Endless.new]
    when "/ticking" then [200, text, Ticking.new]
    when "/sleep" then sleep 0.5; [200, text, ["slept"]]
    when "/gate" then sleep 0.01 until File.exist?("gate.log"); [200, text, ["opened"]]
    when %r{\A/digest}
      digest, size = OpenSSL::Digest.new("SHA256"), 0
      buffer = +""
      while env["rack.input"].read(65_536, buffer)
        digest << buffer
        size += buffer.bytesize
      end
      [200, text, ["#{size} #{digest.hexdigest}"]]
    else [200, text, ["quick"]]
    end
  }
RUBY

class SlowReadersTest < Case
  in_turn!

  include OtherClients

  LARGE = "0123456789" * 500_000

  shared_server threads: "1:1", app: SLOW_CLIENTS_APP, files: { "large.log" => LARGE }

  %w[large large-each file].each do |path|
    it "serves others while 5 MB of /#{path} are read slowly, and sends them completely" do
      slow = Array.new(5) { connect(receive_buffer: 8192).write(request("GET", "/#{path}")) }
      heads = slow.map(&:read_head)
      assert_others_served "while #{slow.size} clients hold back"
      slow.zip(heads).first(2).each do |connection, head|
        body = connection.read_body(head).body
        assert_equal OpenSSL::Digest.hexdigest("SHA256", LARGE), OpenSSL::Digest.hexdigest("SHA256", body)
      end
    end
  end

  it "keeps serving when slow readers disappear" do
    Array.new(10) { connect(receive_buffer: 8192).write(request("GET", "/large")) }.each do |connection|
      connection.read_head
      connection.reset!
    end
    assert_others_served "after they have gone"
  end
end

# Alone: it measures memory, and hundreds of MiB pass through this process.
class SlowUploadsTest < Case
  include OtherClients

  shared_server threads: "1:1", app: SLOW_CLIENTS_APP, settings: { limits: { max_body: 4 << 30 } }

  it "does not call the app before an upload is complete" do
    body = Random.new(1).bytes(1_000_000)
    slow = Array.new(10) { connect.write(request("POST", "/digest/half", {}, body)[0..-500_001]) }
    assert_others_served "while uploads are half done"
    refute_includes File.read(server.path("seen.log")), "/digest/half"
    slow.each { |connection| connection.write(body[-500_000..]) }
    slow.each { |connection| assert_equal "1000000 #{OpenSSL::Digest.hexdigest('SHA256', body)}", connection.read_response.body }
  end

  it "spools a large body to an unlinked file" do
    body = "x" * 3_000_000
    connection = connect
    connection.write(request("POST", "/digest", {}, body)[0..-2])
    sleep 0.2
    assert_empty Dir.children(server.temp_dir)
    connection.write("x")
    assert_match(/\A3000000 /, connection.read_response.body)
  end

  it "drops an incomplete upload when its client disconnects" do
    connection = connect
    connection.write(request("POST", "/never", {}, "x" * 1_000_000)[0..-2])
    connection.reset!
    assert_others_served "after it has gone"
    refute_includes File.read(server.path("seen.log")), "/never"
  end

  megabytes = Integer(ENV.fetch("TEST_UPLOAD_MIB", "200"))

  [["of declared length", false], ["in chunks", true]].each do |how, in_chunks|
    it "accepts an upload of #{megabytes} MiB #{how} in bounded memory" do
      assert_others_served "before"
      memory = watch_memory
      digest = OpenSSL::Digest.new("SHA256")
      connection = connect(deadline: 120)
      piece = Random.new(2).bytes(1 << 20)
      framing = in_chunks ? "Transfer-Encoding: chunked" : "Content-Length: #{megabytes << 20}"
      connection.write("POST /digest HTTP/1.1\r\nHost: x\r\n#{framing}\r\n\r\n")
      megabytes.times do
        digest << piece
        connection.write(in_chunks ? "100000\r\n".b + piece + "\r\n" : piece)
      end
      connection.write("0\r\n\r\n") if in_chunks
      assert_equal "#{megabytes << 20} #{digest.hexdigest}", connection.read_response.body
      assert_operator memory.call, :<, 48 << 20, "memory growth of all processes in bytes"
    end
  end

  private

  # Samples the memory of the whole server; the returned lambda stops that and returns the growth.
  def watch_memory
    before = most = server.pss
    watching = true
    watcher = Thread.new do
      while watching
        most = [most, server.pss].max
        sleep 0.1
      end
    end
    lambda do
      watching = false
      watcher.join
      most - before
    end
  end
end

class EndlessResponsesTest < Case
  parallel!

  include OtherClients

  it "pauses an endless response whose client does not read, in bounded memory" do
    own = start(threads: "1:1", app: SLOW_CLIENTS_APP, settings: { limits: { response_memory: 1 << 20, response_spool: 8 << 20 } })
    assert_others_served "before", to: own
    before = own.pss
    connection = connect(own, receive_buffer: 8192)
    connection.write(request("GET", "/endless"))
    head = connection.read_head
    assert_status 200, head
    stands_still(own)
    assert_operator produced(own), :<, 64 << 20, "bytes that the app has written"
    assert_operator own.pss - before, :<, 48 << 20
    halted = produced(own)
    connection.read_exactly(2 << 20)
    8.times { connection.read_exactly(1 << 20) }
    wait_until("the app to go on") { produced(own) > halted }
    connection.reset!
    wait_until("the body to be closed") { File.exist?(own.path("closed.log")) }
    assert_others_served "after the client has gone", to: own
  end

  it "closes the body when the client disconnects from a stream" do
    own = start(threads: "1:1", app: SLOW_CLIENTS_APP)
    connection = connect(own)
    connection.write(request("GET", "/ticking"))
    connection.read_head
    assert_includes connection.read_some, "tick"
    connection.close
    wait_until("the body to be closed") { File.exist?(own.path("closed.log")) }
    assert_others_served "afterwards", to: own
  end

  it "sends each piece of a stream at once" do
    own = start(threads: "1:1", app: SLOW_CLIENTS_APP)
    connection = connect(own)
    connection.write(request("GET", "/ticking"))
    connection.read_head
    5.times { assert_includes connection.read_some, "tick" }
  end

  it "closes the connection of a client that does not read for the send timeout" do
    firebrick_only
    own = start(threads: "1:1", app: SLOW_CLIENTS_APP, settings: { timeouts: { send: 1 }, limits: { response_spool: 1 << 20 } })
    connection = connect(own, receive_buffer: 8192)
    connection.write(request("GET", "/endless"))
    connection.read_head
    wait_until("the body to be closed") { File.exist?(own.path("closed.log")) }
    assert_others_served "afterwards", to: own
  end

  private

  def produced(server)
    File.read(server.path("produced.log")).to_i * 65_536
  end

  # Waits until the app has written nothing for half a second.
  def stands_still(server)
    wait_until("the app to be held back") do
      first = produced(server)
      sleep 0.5
      first.positive? && first == produced(server)
    end
  end
end

class DisconnectsTest < Case
  parallel!

  include OtherClients

  it "does not pass on a queued request whose client has disconnected" do
    firebrick_only
    own = start(threads: "1:1", fibers: 1, app: SLOW_CLIENTS_APP)
    holder = connect(own).write(request("GET", "/gate"))
    wait_until("it to hold the thread") { seen(own).include?("/gate") }
    gone = Array.new(5) { |i| connect(own).write(request("GET", "/never#{i}")) }
    waiting = connect(own).write(request("GET", "/patient"))
    wait_for_requests(7, on: own)
    gone.each_with_index { |connection, i| i.even? ? connection.reset! : connection.close }
    wait_for_requests(2, on: own)
    File.write(own.path("gate.log"), "open")
    assert_equal "opened", holder.read_response.body
    assert_equal "quick", waiting.read_response.body
    refute_match(/never/, seen(own))
  end

  it "finishes silently when the client disconnects during its request" do
    own = start(threads: "1:1", app: SLOW_CLIENTS_APP)
    connect(own).write(request("GET", "/sleep")).tap { wait_until { seen(own).include?("/sleep") } }.reset!
    assert_others_served "afterwards", to: own
    assert_equal 1, seen(own).scan("/sleep").size
  end

  private

  def seen(server)
    File.exist?(server.path("seen.log")) ? File.read(server.path("seen.log")) : ""
  end
end
