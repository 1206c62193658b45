# frozen_string_literal: true

# A raw HTTP/2 client (RFC 9113) that can send any bytes. It acknowledges SETTINGS and answers no other frame by itself; flow
# control is up to the test, but windows are large by default.

require "socket"
require "support/clock"
require "support/connection"
require "support/hpack"

class Http2Client
  PREFACE = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".b
  TYPES = { data: 0, headers: 1, priority: 2, rst_stream: 3, settings: 4, push_promise: 5, ping: 6, goaway: 7, window_update: 8,
            continuation: 9, priority_update: 16 }.freeze
  NAMES = TYPES.invert.freeze
  END_STREAM = 0x1
  ACK = 0x1
  END_HEADERS = 0x4
  PADDED = 0x8
  PRIORITY = 0x20
  CODES = %i[no_error protocol_error internal_error flow_control_error settings_timeout stream_closed frame_size_error refused_stream
             cancel compression_error connect_error enhance_your_calm inadequate_security http_1_1_required].freeze

  Frame = Struct.new(:type, :flags, :stream, :payload) do
    def end_stream?
      %i[data headers].include?(type) && flags.anybits?(END_STREAM)
    end

    # The error code of RST_STREAM or GOAWAY.
    def code
      number = payload.unpack1(type == :goaway ? "x4N" : "N")
      CODES[number] || number
    end
  end

  # The response received on a stream.
  class Answer
    attr_reader :fields, :interim, :body
    attr_accessor :reset, :ended

    def initialize
      @interim = []
      @body = +"".b
    end

    def head(fields)
      status = fields.assoc(":status")&.last.to_i
      status < 200 && @fields.nil? && status.positive? ? @interim << fields : (@fields ||= fields)
    end

    def status
      @fields&.assoc(":status")&.last&.to_i
    end

    def [](name)
      @fields&.assoc(name)&.last
    end

    def over?
      @ended || @reset
    end

    # The status, or the code that the stream was reset with.
    def result
      status || @reset
    end
  end

  attr_reader :socket, :goaway, :settings, :answers, :frames, :acknowledged

  # settings:: of this client, id => value. preface:: the bytes to send instead of the preface and SETTINGS. connection:: an open one,
  # such as a TlsConnection.
  def initialize(address, settings: {}, preface: nil, receive_buffer: nil, deadline: 20, connection: nil)
    @connection = connection || Connection.new(address, deadline: deadline, receive_buffer: receive_buffer)
    @socket = @connection.socket
    @deadline = deadline
    @decoder = Hpack::Decoder.new
    @answers = Hash.new { |all, stream| all[stream] = Answer.new }
    @frames = Hash.new(0)
    @acknowledged = 0
    @next_stream = 1
    write(preface || (PREFACE + settings_frame({ 4 => 1 << 30 }.merge(settings)) + window_update(0, (1 << 30) - 65_535)))
  end

  def write(bytes)
    @connection.write(bytes)
    self
  end

  # --- frames, as bytes

  def frame(type, flags, stream, payload = "")
    type = TYPES.fetch(type) if type.is_a?(Symbol)
    [payload.bytesize].pack("N").byteslice(1, 3) + [type, flags, stream].pack("CCN") + payload.b
  end

  def settings_frame(values, flags: 0, stream: 0)
    frame(:settings, flags, stream, values.map { |pair| pair.pack("nN") }.join)
  end

  def window_update(stream, increment)
    frame(:window_update, 0, stream, [increment].pack("N"))
  end

  def rst_stream(stream, code = 8)
    frame(:rst_stream, 0, stream, [code].pack("N"))
  end

  def data(stream, bytes, end_stream: true)
    frame(:data, end_stream ? END_STREAM : 0, stream, bytes)
  end

  def headers(stream, block, end_stream: true, flags: END_HEADERS)
    frame(:headers, flags | (end_stream ? END_STREAM : 0), stream, block)
  end

  # --- requests

  def next_stream
    @next_stream.tap { @next_stream += 2 }
  end

  # The fields of a request; +more+ come after the pseudo-fields.
  def fields(path = "/", method: "GET", more: {}, scheme: "http", authority: "example.test")
    [[":method", method], [":scheme", scheme], [":authority", authority], [":path", path]] + more.to_a
  end

  # Sends a request and returns its stream; the body is left open with body: :open.
  def request(path = "/", method: nil, headers: {}, body: nil, **pseudo)
    stream = next_stream
    method ||= body ? "POST" : "GET"
    write(headers(stream, Hpack.block(fields(path, method: method, more: headers, **pseudo)), end_stream: body.nil?))
    write(split(stream, body)) if body.is_a?(String)
    stream
  end

  # Splits a body into DATA frames, without regard for windows.
  def split(stream, body, end_stream: true)
    pieces = body.empty? ? [""] : body.scan(/.{1,16384}/mn)
    pieces.each_with_index.map { |piece, i| data(stream, piece, end_stream: end_stream && i == pieces.size - 1) }.join
  end

  # Sends the fields exactly as given and returns the stream.
  def raw_request(fields, end_stream: true)
    next_stream.tap { |stream| write(headers(stream, Hpack.block(fields), end_stream: end_stream)) }
  end

  # Returns the answer to a request, when it is complete or reset.
  def get(path = "/", **options)
    answer(request(path, **options))
  end

  def answer(stream)
    read_until("an answer on stream #{stream}") { @answers[stream].over? }
    @answers[stream]
  end

  # Reads frames until the block is true.
  def read_until(what, within: @deadline)
    stop = Clock.now + within
    until yield
      raise Minitest::Assertion, "not within #{within} s: #{what}; frames: #{@frames}, goaway: #{@goaway&.code}" if Clock.now >= stop
      raise TruncatedResponse, "the connection ended before #{what}; goaway: #{@goaway&.code}" unless read_frame(stop - Clock.now)
    end
    true
  end

  # Returns whether the server ends the connection (GOAWAY or end of file) within that time.
  def ends?(within: @deadline)
    stop = Clock.now + within
    while Clock.now < stop
      return true if @goaway
      return true unless read_frame(stop - Clock.now)
    end
    false
  end

  # Returns whether the server answers a PING, so it has read all frames sent before.
  def alive?(within: @deadline)
    mark = Random.bytes(8)
    @pong = nil
    write(frame(:ping, 0, 0, mark))
    read_until("an answer to a PING", within: within) { @pong == mark }
  rescue TruncatedResponse
    false
  end

  # Reads one frame; nil at the end of the connection.
  def read_frame(within = @deadline)
    return nil if @ended
    return :nothing unless @connection.buffered.bytesize >= 9 || wait(within)

    head = @connection.read_exactly(9)
    length = ("\0" + head.byteslice(0, 3)).unpack1("N")
    type, flags, stream = head.byteslice(3, 6).unpack("CCN")
    one = Frame.new(NAMES.fetch(type, type), flags, stream, @connection.read_exactly(length))
    @frames[one.type] += 1
    take(one)
    one
  rescue TruncatedResponse
    @ended = true
    nil
  end

  def close
    @connection.close
  end

  private

  def wait(within)
    return true if @socket.respond_to?(:pending) && @socket.pending.positive?
    return true if @socket.to_io.wait_readable([within, 0.001].max)

    false
  end

  def take(frame)
    case frame.type
    when :settings then take_settings(frame)
    when :headers, :continuation then take_headers(frame)
    when :data then take_data(frame)
    when :rst_stream then @answers[frame.stream].reset = frame.code
    when :goaway then @goaway = frame
    when :ping then @pong = frame.payload if frame.flags.anybits?(ACK)
    end
  end

  def take_settings(frame)
    return @acknowledged += 1 if frame.flags.anybits?(ACK)

    @settings = frame.payload.scan(/.{6}/mn).to_h { |one| one.unpack("nN") }
    write(frame(:settings, ACK, 0))
  end

  def take_headers(frame)
    @block = frame.type == :headers ? frame.payload : @block + frame.payload
    @ends = frame.end_stream? if frame.type == :headers
    return unless frame.flags.anybits?(END_HEADERS)

    @answers[frame.stream].head(@decoder.decode(@block))
    @answers[frame.stream].ended = true if @ends
  end

  def take_data(frame)
    answer = @answers[frame.stream]
    @discard ? @discard.call(frame.stream, frame.payload) : answer.body << frame.payload
    answer.ended = true if frame.end_stream?
  end

  public

  # Calls the block with bodies instead of keeping them.
  def discard(&block)
    @discard = block
    self
  end
end
