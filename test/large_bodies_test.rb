# frozen_string_literal: true

# Large bodies in the app's memory: each byte arrives once and in order, whichever process writes it to the client, and
# however slowly the client reads.

require "support/case"
require "support/other_clients"

LARGE_BODIES_APP = <<~'RUBY'
  sizes = { "small" => 100_000, "edge" => 131_072, "above" => 131_080, "one" => 1 << 20, "twenty" => 20 << 20 }
  numbers = (0...(sizes.values.max / 8)).to_a.pack("Q<*")
  bodies = sizes.transform_values { |size| numbers.byteslice(0, size).freeze }
  text = { "content-type" => "application/octet-stream" }

  run lambda { |env|
    File.write("seen.log", "#{env['PATH_INFO']}\n", mode: "a")
    body = bodies[File.basename(env["PATH_INFO"])]
    case env["PATH_INFO"]
    when %r{\A/array/} then [200, text.dup, [body]]
    when %r{\A/string/} then [200, text.dup, body]
    when %r{\A/unfrozen/} then [200, text.dup, [+"" << body]]
    when %r{\A/parts/} then [200, text.dup, [body[0, 10], body[10, 60_000], body[60_010..-11], body[-10..]]]
    when %r{\A/length/} then [200, text.merge("content-length" => body.bytesize.to_s), [body]]
    when %r{\A/too-short/} then [200, text.merge("content-length" => "150000"), [body]]
    when %r{\A/too-long/} then [200, text.merge("content-length" => (body.bytesize + 5).to_s), [body]]
    when %r{\A/close/} then [200, text.merge("connection" => "close"), [body]]
    else [200, text.dup, ["quick"]]
    end
  }
RUBY

module LargeBodies
  SIZES = { "small" => 100_000, "edge" => 131_072, "above" => 131_080, "one" => 1 << 20, "twenty" => 20 << 20 }.freeze

  def self.numbers(name)
    (@numbers ||= {})[name] ||= (0...(SIZES.fetch(name) / 8)).to_a.pack("Q<*").freeze
  end

  # The body equals the one with that name; reports the first difference instead of the whole body.
  def assert_numbers(name, body)
    expected = LargeBodies.numbers(name)
    return pass if body == expected

    at = body.bytes.zip(expected.bytes).index { |got, wanted| got != wanted }
    flunk "#{body.bytesize} bytes of #{expected.bytesize}; first difference at #{at.inspect}"
  end
end

class LargeBodiesTest < Case
  in_turn!

  include OtherClients
  include LargeBodies

  shared_server threads: "1:1", app: LARGE_BODIES_APP

  %w[array string unfrozen parts length].each do |shape|
    LargeBodies::SIZES.each_key do |size|
      it "sends /#{shape}/#{size} completely and keeps the connection" do
        connection = connect
        2.times { assert_numbers size, connection.write(request("GET", "/#{shape}/#{size}")).read_response.body }
        assert_alive connection
      end
    end
  end

  %w[one twenty].each do |size|
    it "serves others while /array/#{size} is read slowly, and sends it completely" do
      slow = Array.new(4) { connect(receive_buffer: 8192).write(request("GET", "/array/#{size}")) }
      heads = slow.map(&:read_head)
      assert_others_served "while #{slow.size} clients hold back"
      assert_numbers size, slow.first.read_body(heads.first).body
      assert_others_served "while #{slow.size - 1} clients hold back"
    end
  end

  it "works for clients that have not read the previous response" do
    connection = connect(receive_buffer: 8192)
    8.times { connection.write(request("GET", "/array/one")) }
    connection.write(request("GET", "/quick"))
    sleep 0.3
    assert_others_served "while the client takes nothing"
    8.times { assert_numbers "one", connection.read_response.body }
    assert_equal "quick", connection.read_response.body
  end

  it "responds to requests pipelined behind a large body" do
    connection = connect.write(request("GET", "/array/one") + request("GET", "/array/twenty") + request("GET", "/quick"))
    %w[one twenty].each { |size| assert_numbers size, connection.read_response.body }
    assert_equal "quick", connection.read_response.body
  end

  it "responds to HEAD with the app's length and no body" do
    connection = connect.write(request("HEAD", "/length/one"))
    assert_equal [(1 << 20).to_s], connection.read_response("HEAD").all("content-length")
    assert_alive connection
  end

  it "sends the length to HTTP/1.0 clients, too" do
    connection = connect.write("GET /array/one HTTP/1.0\r\n\r\n")
    response = connection.read_response
    assert_equal (1 << 20).to_s, response["content-length"]
    assert_numbers "one", response.body
    assert_closed connection
    connection = connect.write("GET /array/one HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    assert_numbers "one", connection.read_response.body
    assert_alive connection
  end

  it "closes after a large body when the app asks for it" do
    connection = connect.write(request("GET", "/close/one"))
    assert_numbers "one", connection.read_response.body
    assert_closed connection
  end

  it "never sends more than the app's Content-Length, and closes after a shorter body" do
    connection = connect.write(request("GET", "/too-short/one") + request("GET", "/quick"))
    assert_equal LargeBodies.numbers("one").byteslice(0, 150_000), connection.read_response.body
    assert_closed connection
    connection = connect.write(request("GET", "/too-long/one") + request("GET", "/quick"))
    connection.read_head
    assert connection.ended?
    assert_equal LargeBodies.numbers("one"), connection.buffered
  end

  it "keeps working when clients disappear midway" do
    10.times do |i|
      connection = connect(receive_buffer: 8192).write(request("GET", "/array/twenty"))
      connection.read_head
      connection.read_exactly(i * 5000)
      connection.reset!
    end
    assert_others_served "after they have gone"
    assert_numbers "one", get("/array/one").body
  end

  it "keeps working when clients disappear at once" do
    20.times { connect.write(request("GET", "/array/one")).reset! }
    assert_others_served "after they have gone"
  end
end

class LargeBodiesOnUnixSocketsTest < Case
  parallel!

  include OtherClients
  include LargeBodies

  it "sends them completely, to fast and to slow clients" do
    server = start(app: LARGE_BODIES_APP, threads: "1:1", binds: ["unix://large.sock"])
    connection = connect(server)
    %w[one twenty one].each { |size| assert_numbers size, connection.write(request("GET", "/array/#{size}")).read_response.body }
    slow = connect(server).write(request("GET", "/array/twenty"))
    head = slow.read_head
    assert_others_served "while a client holds back", to: server
    assert_numbers "twenty", slow.read_body(head).body
  end
end

class LargeBodiesOfManyThreadsTest < Case
  parallel!

  include LargeBodies

  it "mixes nothing up between connections, threads and workers" do
    server = start(app: LARGE_BODIES_APP, threads: "3:3", workers: 2)
    clients = Array.new(8) do |i|
      Thread.new do
        connection = connect(server)
        Array.new(30) do |j|
          size = %w[one above small][(i + j) % 3]
          connection.write(request("GET", "/#{%w[array parts unfrozen][j % 3]}/#{size}")).read_response.body == LargeBodies.numbers(size)
        end
      end
    end
    assert_equal [true], clients.flat_map(&:value).uniq
  end

  it "closes the connection when the worker dies while clients read" do
    server = start(app: LARGE_BODIES_APP, threads: "1:1")
    connection = connect(server, receive_buffer: 8192).write(request("GET", "/array/twenty"))
    head = connection.read_head
    worker = Processes.tree(server.pid).find { |one| Processes.command(one.pid).include?("worker") }
    refute_nil worker, Processes.tree(server.pid).map { |one| Processes.command(one.pid) }.inspect
    Process.kill("KILL", worker.pid)
    # Either the front already has the whole response, or the response is cut off. Nothing else may happen.
    body = begin
      connection.read_body(head).body
    rescue TruncatedResponse
      connection.buffered
    end
    assert LargeBodies.numbers("twenty").start_with?(body)
  end
end
