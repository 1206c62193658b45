# frozen_string_literal: true

# A chat room over WebSocket, in plain Ruby: `rack.hijack` gives the connection, websocket-driver speaks the protocol,
# and each visitor has a thread that waits for what comes in. The app's own threads are free at once.

require "json"
require "websocket/driver"

# Everybody who is there.
class Room
  def initialize
    @visitors = []
    @lock = Mutex.new
  end

  def join(visitor)
    @lock.synchronize { @visitors << visitor }
    say("somebody came in")
  end

  def leave(visitor)
    say("somebody went out") if @lock.synchronize { @visitors.delete(visitor) }
  end

  def say(text)
    message = JSON.generate(text: text, visitors: visitors.size)
    visitors.each { |visitor| visitor.tell(message) }
  end

  private

  def visitors = @lock.synchronize { @visitors.dup }
end

# One connection.
class Visitor
  LONGEST_MESSAGE = 4096

  attr_reader :env, :url

  def initialize(env, room)
    @env = env
    @room = room
    scheme = env["rack.url_scheme"] == "https" ? "wss" : "ws"
    @url = "#{scheme}://#{env['HTTP_HOST']}#{env['PATH_INFO']}"
    @writing = Mutex.new
  end

  # Takes the connection over and answers the handshake.
  def start
    hijacked = @env["rack.hijack"].call
    @io = @env["rack.hijack_io"] || hijacked
    @driver = WebSocket::Driver.rack(self, max_length: LONGEST_MESSAGE)
    @driver.on(:open) { @room.join(self) }
    @driver.on(:message) { |event| @room.say(event.data) }
    @driver.on(:close) { @closed = true }
    Thread.new { listen }
  end

  # Sends a message to this visitor.
  def tell(message)
    @driver.text(message)
  end

  # What the driver calls to send bytes; several visitors' threads may do so at once.
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
    nil # gone without a goodbye
  ensure
    @room.leave(self)
    @io.close
  end
end
