# frozen_string_literal: true

# A server at max_connections: which connections make room for new ones, and when a new one is refused.

require "support/case"
require "support/gate"

class FullServerTest < Case
  include Gate

  parallel!

  MAX = 8

  def setup
    firebrick_only
  end

  def full(front_threads: 1, threads: "16:16")
    start(app: APP, threads:, settings: { front_threads:, limits: { max_connections: MAX }, timeouts: { header: 20, keep_alive: 60 } })
  end

  def idle(own, count = MAX)
    Array.new(count) do |i|
      connect(own).tap do |connection|
        connection.write(request("GET", "/#{i}"))
        assert_status 200, connection.read_response
      end
    end
  end

  def active(own, count = MAX)
    hold(own, Array.new(count) { connect(own) })
  end

  def served(own, within: 2)
    started = Time.now
    connection = connect(own)
    connection.write(request("GET", "/new"))
    assert_status 200, connection.read_response
    assert_operator Time.now - started, :<, within
    connection
  end

  it "serves a new client at once while all others are idle" do
    own = full
    used = idle(own)
    served(own)
    assert_closed used.first
    used.drop(1).each { |connection| assert_alive connection }
  end

  it "closes the connections in the order in which they became idle" do
    own = full
    used = idle(own)
    assert_alive used.first
    3.times { served(own) }
    used[1..3].each { |connection| assert_closed connection }
    [used[0], *used.drop(4)].each { |connection| assert_alive connection }
  end

  it "serves many new clients, one after the other and together" do
    own = full
    idle(own)
    30.times { served(own).close }
    Array.new(MAX) { Thread.new { served(own, within: 5) } }.each(&:join)
  end

  it "never closes a connection with a request in progress" do
    own = full
    held = active(own, MAX - 1)
    used = idle(own, 1)
    3.times { served(own).close }
    assert_closed used.first
    open_gate(own, held)
  end

  it "closes connections that have never sent a byte" do
    own = full
    silent = Array.new(MAX) { connect(own) }
    wait_until("all are open") { own.stats.dig("connections", "open") == MAX }
    served(own)
    # In which order the kernel hands over those that say nothing is not known.
    assert_equal(1, silent.count { |connection| connection.ended?(within: 0.2) })
  end

  it "does not close a connection with a part of a head before idle ones" do
    own = full
    partial = connect(own)
    partial.write("GET /partial HTTP/1.1\r\nHost: x\r\n")
    sleep 0.2
    used = idle(own, MAX - 1)
    (MAX - 1).times { served(own) }
    used.each { |connection| assert_closed connection }
    partial.write("\r\n")
    assert_status 200, partial.read_response
  end

  it "responds with 503 if all connections have requests in progress, and logs it" do
    own = full
    held = active(own)
    extra = connect(own)
    response = extra.read_response
    assert_status 503, response
    assert_equal "1", response["retry-after"]
    assert response["date"]
    assert_closed extra
    wait_until("it is logged") { own.stderr.match?(/503 .*max_connections \(8\)/) }
    open_gate(own, held)
    served(own)
  end

  it "closes idle connections of other front threads" do
    own = full(front_threads: 2)
    idle(own)
    20.times { served(own).close }
    kept = Array.new(MAX) { served(own) }
    20.times { served(own).close }
    kept.each(&:close)
  end
end
