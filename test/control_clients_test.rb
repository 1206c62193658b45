# frozen_string_literal: true

# Clients that hold connections to the control socket open do not keep others from responses.

require "json"
require "socket"
require "support/case"

# Alone: beside other tests a client may send its request so slowly that it is closed to make room.
class ControlClientsTest < Case
  APP = 'run ->(_) { [200, { "content-type" => "text/plain" }, ["hello"]] }'

  def setup
    firebrick_only
  end

  def control(server) = Dir[File.join(server.run_dir, "firebrick", "*.sock")].first

  def stats(server)
    UNIXSocket.open(control(server)) do |socket|
      socket.write("GET /stats HTTP/1.1\r\nHost: x\r\n\r\n")
      JSON.parse(socket.read.split("\r\n\r\n", 2).last)
    end
  end

  def open?(socket)
    return true unless socket.wait_readable(0)

    socket.read_nonblock(1)
    true
  rescue EOFError, Errno::ECONNRESET
    false
  end

  # If a connection waited for the deadlines of earlier ones, all of them would be closed by then.
  it "responds at once while 64 clients send nothing" do
    own = start(app: APP)
    slow = Array.new(64) { UNIXSocket.new(control(own)) }
    slow.each { |socket| socket.write("GET /stats HTTP/1.1\r\nHo") }
    assert_equal own.pid, stats(own)["pid"]
    still_open = slow.count { |socket| open?(socket) }
    assert_operator still_open, :>, 0, "the response came only after all slow clients had run into their deadlines"
    assert_operator still_open, :<, 64, "a slow client gave way"
  ensure
    slow&.each(&:close)
  end

  it "serves more clients than it has connections, when all send requests" do
    own = start(app: APP)
    pids = Array.new(60) { Thread.new { stats(own)["pid"] } }.map(&:value)
    assert_equal [own.pid], pids.uniq
  end
end
