# frozen_string_literal: true

# A chat room over WebSocket, in plain Ruby: `rack.hijack` hands over the connection, websocket-driver implements the
# protocol, and each visitor has a thread that waits for messages. The server's threads are free at once.

require "json"
require "websocket/driver"

# All connected visitors.
class Room
  def initialize
    @visitors = []
    @lock = Mutex.new
  end

  def join(visitor)
    @lock.synchronize { @visitors << visitor }
    say("a visitor joined")
  end

  def leave(visitor)
    say("a visitor left") if @lock.synchronize { @visitors.delete(visitor) }
  end

  def say(text)
    message = JSON.generate(text: text, visitors: visitors.size)
    visitors.each { |visitor| visitor.deliver(message) }
  end

  private

  def visitors = @lock.synchronize { @visitors.dup }
end

# One connection.
class Visitor
  MAX_MESSAGE = 4096

  attr_reader :env, :url

  def initialize(env, room)
    @env = env
    @room = room
    scheme = env["rack.url_scheme"] == "https" ? "wss" : "ws"
    @url = "#{scheme}://#{env['HTTP_HOST']}#{env['PATH_INFO']}"
    @writing = Mutex.new
  end

  # Takes the connection over and completes the handshake.
  def start
    hijacked = @env["rack.hijack"].call
    @io = @env["rack.hijack_io"] || hijacked
    @driver = WebSocket::Driver.rack(self, max_length: MAX_MESSAGE)
    @driver.on(:open) { @room.join(self) }
    @driver.on(:message) { |event| @room.say(event.data) }
    @driver.on(:close) { @closed = true }
    Thread.new { listen }
  end

  # Sends a message to this visitor.
  def deliver(message)
    @driver.text(message)
  end

  # Called by the driver to send bytes, possibly from several visitors' threads at once.
  def write(bytes)
    @writing.synchronize { @io.write(bytes) }
  rescue IOError, SystemCallError
    @closed = true
  end

  private

  def listen
    @driver.start
    @driver.parse(@io.readpartial(4096)) until @closed
  rescue IOError, SystemCallError
    nil # disconnected without a close frame
  ensure
    @room.leave(self)
    @io.close
  end
end
