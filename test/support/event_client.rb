# frozen_string_literal: true

# A client of Server-Sent Events without a browser, over HTTP/1.1 or HTTP/2. It reads bodies by the rules of the HTML
# Standard, section 9.2.6.

require "support/clock"
require "support/connection"
require "support/http2_client"

class EventClient
  include Clock

  Event = Struct.new(:id, :type, :data)

  # The status and the fields of the response; what has arrived: events, comments, the last id and the last `retry`.
  attr_reader :status, :fields, :events, :comments, :last_id, :retry

  # server:: a Server, whose first address is in plain text
  # client:: an Http2Client to share
  def initialize(server, path, version: "HTTP/1.1", fields: {}, client: nil, receive_buffer: nil)
    @events = []
    @comments = []
    @text = +""
    @event = Event.new(nil, "message", nil)
    version == "HTTP/2" ? open_two(server, path, fields, client) : open_one(server, path, fields, receive_buffer)
  end

  # Reads until the block returns a value, and returns it.
  def wait(within = 20)
    stop = now + within
    loop do
      found = yield and return found
      raise Minitest::Assertion, "not within #{within} s; so far #{events}, ended: #{ended?}" if now > stop || ended?

      step(0.1)
    end
  end

  def wait_for(data) = wait { events.find { |event| event.data == data } }

  # Reads what comes within some seconds.
  def listen(seconds)
    stop = now + seconds
    step(0.05) while now < stop && !ended?
  end

  def wait_for_end(within = 20)
    stop = now + within
    step(0.1) until ended? || now > stop
    ended? or raise Minitest::Assertion, "not ended within #{within} s; so far #{events}"
  end

  def data = events.map(&:data)

  def ended? = @ended || false

  def close = @connection.close

  private

  def open_one(server, path, fields, receive_buffer)
    @connection = Connection.new(server.address, receive_buffer: receive_buffer)
    head = { "Host" => "example.test", "Accept" => "text/event-stream" }.merge(fields)
    @connection.write("GET #{path} HTTP/1.1\r\n#{head.map { |name, value| "#{name}: #{value}\r\n" }.join}\r\n")
    response = @connection.read_head
    @status = response.status
    @fields = response.headers.to_a.to_h.transform_keys(&:downcase)
    @ended = !@fields.key?("transfer-encoding")
  end

  def open_two(server, path, fields, client)
    @connection = client || Http2Client.new(server.address)
    @stream = @connection.request(path, headers: { "accept" => "text/event-stream" }.merge(fields.transform_keys(&:downcase)))
    @answer = @connection.answers[@stream]
    @connection.read_until("a head") { @answer.status }
    @status = @answer.status
    @fields = @answer.fields.to_a.to_h
    @at = 0
  end

  def step(patience)
    @answer ? step_two(patience) : step_one(patience)
  end

  def step_one(patience)
    return if @connection.silent?(patience)

    size = Integer(@connection.read_through("\r\n").chomp, 16)
    take(@connection.read_exactly(size))
    @connection.read_exactly(2)
    @ended = size.zero?
  end

  def step_two(patience)
    @connection.read_frame(patience) if @answer.body.bytesize == @at && !@answer.over?
    take(@answer.body.byteslice(@at..))
    @at = @answer.body.bytesize
    @ended = @answer.over?
  end

  def take(bytes)
    @text << bytes.dup.force_encoding("UTF-8")
    line(@text.slice!(0..@text.index("\n")).chomp) while @text.include?("\n")
  end

  def line(line)
    return finish if line.empty?

    name, value = line.split(":", 2)
    value = value.to_s.delete_prefix(" ")
    case name
    when "" then @comments << value
    when "id" then @last_id = value
    when "retry" then @retry = Integer(value)
    when "event" then @event.type = value
    when "data" then @event.data = [@event.data, value].compact.join("\n")
    end
  end

  def finish
    @events << Event.new(@last_id, @event.type, @event.data) if @event.data
    @event = Event.new(nil, "message", nil)
  end
end
