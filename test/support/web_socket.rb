# frozen_string_literal: true

# Clients that open a WebSocket in each version of HTTP, with one interface: the opening handshake, then bytes both ways. Frames
# are up to the tests.

require "digest/sha1"
require "json"
require "open3"
require "support/connection"
require "support/http2_client"
require "support/quic_go"
require "timeout"

module WebSocket
  VERSIONS = %w[HTTP/1.1 HTTP/2 HTTP/3].freeze
  GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

  # A frame of a client (RFC 6455 section 5.2), masked.
  def self.frame(text, opcode: 1)
    mask = "mask".bytes
    length = case text.bytesize
             when ...126 then [0x80 | text.bytesize].pack("C")
             when ...65_536 then [0x80 | 126, text.bytesize].pack("Cn")
             else [0x80 | 127, text.bytesize].pack("CQ>")
             end
    [0x80 | opcode].pack("C") + length + mask.pack("C*") + text.b.bytes.each_with_index.map { |byte, i| byte ^ mask[i % 4] }.pack("C*")
  end

  # Over HTTP/1.1: the connection becomes the WebSocket.
  class One
    attr_reader :status, :fields

    # server:: one with an address in plain text
    def initialize(server, path, protocol: "websocket", fields: {})
      @connection = Connection.new(server.address)
      key = ["0123456789abcdef"].pack("m0")
      head = { "Host" => "example.test", "Connection" => "Upgrade", "Upgrade" => protocol, "Sec-WebSocket-Version" => "13",
               "Sec-WebSocket-Key" => key }.merge(fields)
      @connection.write("GET #{path} HTTP/1.1\r\n#{head.map { |name, value| "#{name}: #{value}\r\n" }.join}\r\n")
      response = @connection.read_head
      @status = response.status
      @fields = response.headers.to_h.transform_keys(&:downcase)
      @body = @connection.read_body(response).body unless open?
      @accepts = @fields.delete("sec-websocket-accept") == [Digest::SHA1.digest(key + GUID)].pack("m0")
    end

    # Whether the handshake is one that a client accepts.
    def open?
      @status == 101
    end

    def accepted?
      open? && @accepts
    end

    # The body of a response that opens nothing.
    attr_reader :body

    def write(bytes)
      @connection.write(bytes)
    end

    def close_write
      @connection.socket.close_write
    end

    def read_exactly(count)
      @connection.read_exactly(count)
    end

    def read_to_end
      @connection.read_to_end
    end

    # Whether the server has reset the stream.
    def reset?
      @connection.reset?
    end

    def silent?(seconds = 0.15)
      @connection.silent?(seconds)
    end

    def reset!
      @connection.reset!
    end

    def close
      @connection.close
    end
  end

  # Over HTTP/2: the stream of an Extended CONNECT (RFC 8441). Others may share its connection.
  class Two
    attr_reader :client, :stream

    # server:: one whose address speaks HTTP/2 in plain text
    def initialize(server, path, protocol: "websocket", fields: {}, client: nil)
      @own = client.nil?
      @client = client || Http2Client.new(server.address)
      @client.read_until("SETTINGS") { @client.settings }
      raise Minitest::Assertion, "SETTINGS_ENABLE_CONNECT_PROTOCOL is not 1" unless @client.settings[8] == 1

      head = [[":method", "CONNECT"], [":protocol", protocol], [":scheme", "http"], [":path", path], [":authority", "example.test"],
              %w[sec-websocket-version 13]] + fields.map { |name, value| [name.downcase, value] }
      @stream = @client.raw_request(head, end_stream: false)
      @client.read_until("a response") { answer.result }
      @at = 0
    end

    def answer
      @client.answers[@stream]
    end

    def status
      answer.status
    end

    def fields
      answer.fields.to_a.reject { |name, _| name.start_with?(":") }.to_h
    end

    def open?
      status == 200
    end
    alias accepted? open?

    def body
      read_to_end
    end

    def write(bytes)
      @client.write(@client.split(@stream, bytes, end_stream: false))
    end

    def close_write
      @client.write(@client.data(@stream, ""))
    end

    def read_exactly(count)
      @client.read_until("#{count} bytes") { answer.body.bytesize >= @at + count || answer.over? }
      raise TruncatedResponse, "the stream ended before #{count} bytes: #{answer.body.byteslice(@at..)}" if answer.body.bytesize < @at + count

      take(count)
    end

    def read_to_end
      @client.read_until("the end of the stream") { answer.over? }
      take(answer.body.bytesize - @at)
    end

    def reset?
      @client.read_until("the end of the stream") { answer.over? }
      !answer.reset.nil?
    end

    def silent?(seconds = 0.15)
      stop = Clock.now + seconds
      @client.read_frame(stop - Clock.now) while Clock.now < stop && answer.body.bytesize == @at && !answer.over?
      answer.body.bytesize == @at && !answer.over?
    end

    def reset!
      @client.write(@client.rst_stream(@stream))
    end

    def close
      @client.close if @own
    end

    private

    def take(count)
      answer.body.byteslice(@at, count).tap { @at += count }
    end
  end

  # Over HTTP/3, by quic-go (RFC 9220).
  class Three
    attr_reader :status, :fields

    # server:: one with an address that speaks TLS
    def initialize(server, path, protocol: "websocket", fields: {})
      url = server.listeners.find { |listener| listener.start_with?("https") } + path
      @in, @out, @err, @thread = Open3.popen3(QuicGo.client, "-websocket", protocol, "-fields", JSON.generate(fields), url)
      @in.binmode
      @out.binmode
      line = within("a response") { @out.gets } or raise TruncatedResponse, "quic-go's client failed: #{@err.read}"
      head = JSON.parse(line)
      raise Minitest::Assertion, "SETTINGS_ENABLE_CONNECT_PROTOCOL is not 1" unless head["enabled"]

      @status = head["status"]
      @fields = head["fields"].to_h { |name, values| [name.downcase, values.join(", ")] }
    end

    def open?
      @status == 200
    end
    alias accepted? open?

    def body
      read_to_end
    end

    def write(bytes)
      @in.write(bytes)
      @in.flush
    end

    def close_write
      @in.close
    end

    def read_exactly(count)
      bytes = within("#{count} bytes") { @out.read(count) }
      raise TruncatedResponse, "the stream ended before #{count} bytes: #{bytes.inspect}" if bytes.to_s.bytesize < count

      bytes
    end

    def read_to_end
      within("the end of the stream") { @out.read }
    end

    def reset?
      read_to_end
      @thread.value.exitstatus == 3
    end

    def silent?(seconds = 0.15)
      !@out.wait_readable(seconds)
    end

    # Resets both halves of the stream.
    def reset!
      kill("TERM")
    end

    def close
      kill("KILL")
      [@in, @out, @err].each { |io| io.close unless io.closed? }
    end

    private

    def kill(signal)
      Process.kill(signal, @thread.pid)
    rescue Errno::ESRCH
      nil
    end

    def within(what, &block)
      Timeout.timeout(20, Minitest::Assertion, "no #{what} from quic-go's client within 20 s", &block)
    end
  end

  # Addresses for a server that speaks all versions: the first in plain text, the second encrypted.
  BINDS = %w[tcp://127.0.0.1:0?h2c=true ssl://127.0.0.1:0?cert=own.pem&key=own.key].freeze
  KINDS = { "HTTP/1.1" => One, "HTTP/2" => Two, "HTTP/3" => Three }.freeze
end
