# frozen_string_literal: true

# A client of Action Cable without a browser, over a WebSocket of any version of HTTP.

require "json"
require "support/clock"
require "support/web_socket"

class CableClient
  include Clock

  BASIC = "actioncable-v1-json"
  EXTENDED = "actioncable-v1-ext-json"

  # The messages so far, without pings; the pings; the status of a Close frame.
  attr_reader :messages, :pings, :closed, :socket

  # server:: a Server
  # version:: of HTTP
  def initialize(server, path: "/cable?user=ann", version: "HTTP/1.1", protocol: BASIC, fields: {})
    fields = { "Sec-WebSocket-Protocol" => protocol, "Origin" => server.url("").chomp("/") }.merge(fields)
    @socket = WebSocket::KINDS.fetch(version).new(server, path, fields: fields)
    @messages = []
    @pings = []
  end

  def open? = @socket.open?

  def command(name, channel, **fields)
    send_text(JSON.generate({ command: name, identifier: JSON.generate(channel) }.merge(fields)))
  end

  def subscribe(channel, **fields) = command("subscribe", channel, **fields)

  # Waits for the welcome, and subscribes. Returns itself.
  def subscribed(channel, **fields)
    wait_for(type: "welcome")
    subscribe(channel, **fields)
    wait_for(type: "confirm_subscription", identifier: JSON.generate(channel))
    self
  end

  def perform(channel, action, **data) = command("message", channel, data: JSON.generate({ action: action }.merge(data)))

  def send_text(text) = @socket.write(WebSocket.frame(text))

  # Reads until a message has these fields, and returns it.
  def wait_for(**fields)
    wait { messages.find { |one| includes?(one, fields) } }
  end

  # The messages that channels have got, as they were broadcast or transmitted.
  def received = messages.map { |one| one["message"] }.compact

  # Reads until the block returns a value, and returns it.
  def wait(within = 20)
    stop = now + within
    loop do
      found = yield and return found
      raise Minitest::Assertion, "not within #{within} s; so far #{messages}, closed: #{closed.inspect}" if now > stop || closed

      step
    end
  end

  # Reads everything that is there or comes within some seconds.
  def listen(seconds)
    stop = now + seconds
    step(0.05) while now < stop && !closed
  end

  # Reads up to the Close frame, and returns its status.
  def wait_for_close(within = 20)
    stop = now + within
    step until closed || now > stop
    closed or raise Minitest::Assertion, "not closed within #{within} s; so far #{messages}"
  end

  def close = @socket.close

  private

  # Whether a message has these fields; of an object, these among others.
  def includes?(message, fields)
    fields.all? do |name, value|
      found = message[name.to_s]
      value.is_a?(Hash) ? found.is_a?(Hash) && includes?(found, value) : found == value
    end
  end

  # Reads a frame if one comes soon. Returns whether there was one.
  def step(patience = 0.1)
    return false if @socket.silent?(patience)

    opcode, payload = frame
    case opcode
    when 1 then take(JSON.parse(payload))
    when 8 then @closed = payload.unpack1("n") || 1005
    end
    true
  end

  def take(message)
    (message["type"] == "ping" ? @pings : @messages) << message
  end

  def frame
    first, length = @socket.read_exactly(2).unpack("CC")
    length = case length
             when 126 then @socket.read_exactly(2).unpack1("n")
             when 127 then @socket.read_exactly(8).unpack1("Q>")
             else length
             end
    [first & 0x0f, length.zero? ? "" : @socket.read_exactly(length)]
  end
end
