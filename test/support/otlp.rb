# frozen_string_literal: true

# An OpenTelemetry collector for tests: HTTP/1.1 in a thread, and a decoder of the protobuf messages that it receives.

require "openssl"
require "socket"

# The fields of opentelemetry-proto's trace/v1 that the server writes; numbers and types are from its .proto files.
module Otlp
  SpanRecord = Struct.new(:trace_id, :span_id, :parent_span_id, :name, :kind, :start, :end, :attributes, :status, :state, :flags, :service, keyword_init: true) do
    def milliseconds = (self.end - start) / 1_000_000.0
  end

  module_function

  # Returns `[number, value]` of each field of a message; a value is an Integer, or a String of bytes.
  def fields(bytes)
    found = []
    at = 0
    while at < bytes.bytesize
      key, at = varint(bytes, at)
      value, at = case key & 7
                  when 0 then varint(bytes, at)
                  when 1 then [bytes.byteslice(at, 8).unpack1("Q<"), at + 8]
                  when 2 then length, at = varint(bytes, at)
                              [bytes.byteslice(at, length), at + length]
                  when 5 then [bytes.byteslice(at, 4).unpack1("L<"), at + 4]
                  else raise "wire type #{key & 7}"
                  end
      found << [key >> 3, value]
    end
    found
  end

  def varint(bytes, at)
    value = shift = 0
    loop do
      byte = bytes.getbyte(at)
      value |= (byte & 0x7f) << shift
      at += 1
      return [value, at] if byte < 0x80

      shift += 7
    end
  end

  def all(bytes, number) = fields(bytes).filter_map { |known, value| value if known == number }

  def spans(body)
    all(body, 1).flat_map do |resource_spans|
      service = attributes(all(resource_spans, 1).first, 1)
      all(resource_spans, 2).flat_map { |scope_spans| all(scope_spans, 2).map { |span| span(span, service) } }
    end
  end

  def span(bytes, service)
    one = fields(bytes).to_h
    status = one[15] && fields(one[15]).to_h
    hex = ->(id) { id.to_s.unpack1("H*") }
    SpanRecord.new(trace_id: hex.call(one[1]), span_id: hex.call(one[2]), parent_span_id: hex.call(one[4]), state: one[3].to_s, name: one[5], kind: one[6], start: one[7], end: one[8],
                   attributes: attributes(bytes, 9), status: status && [status[3], status[2].to_s], flags: one[16], service: service)
  end

  def attributes(bytes, number)
    all(bytes, number).to_h do |pair|
      key, value = fields(pair).to_h.values_at(1, 2)
      kind, content = fields(value).first
      [key, kind == 1 ? content.dup.force_encoding("UTF-8") : content]
    end
  end

  # The block gets the number of the request, from 1, and returns the response: status, and header fields as text. `:silence` sends no response.
  class Collector
    Post = Struct.new(:path, :headers, :body, :at)

    attr_reader :posts, :port

    # +tls+:: certificate and key, for https
    def initialize(port: 0, tls: nil, &answer)
      @tls = tls && OpenSSL::SSL::SSLContext.new.tap { |context| context.cert, context.key = tls }
      @answer = answer || ->(_) { [200, ""] }
      @posts = []
      @lock = Mutex.new
      @server = TCPServer.new("127.0.0.1", port)
      @port = @server.addr[1]
      @sockets = []
      @thread = Thread.new { loop { serve(@server.accept) } }
      @thread.report_on_exception = false
    end

    def url = "http#{'s' if @tls}://127.0.0.1:#{port}"

    def spans = @lock.synchronize { @posts.select { |post| post.at.last == 200 }.flat_map { |post| Otlp.spans(post.body) } }

    def count = @lock.synchronize { @posts.size }

    def close
      @thread.kill
      [@server, *@sockets].each { |socket| socket.close unless socket.closed? }
    end

    private

    def serve(socket)
      @sockets << socket
      Thread.new do
        socket = OpenSSL::SSL::SSLSocket.new(socket, @tls).tap(&:accept) if @tls
        while (line = socket.gets)
          headers = {}
          while (field = socket.gets.to_s.chomp) != ""
            name, value = field.split(":", 2)
            headers[name.downcase] = value.strip
          end
          body = socket.read(headers["content-length"].to_i)
          answer(socket, line.split[1], headers, body)
        end
      rescue IOError, SystemCallError, OpenSSL::SSL::SSLError
        nil
      end
    end

    def answer(socket, path, headers, body)
      status, fields = @lock.synchronize do
        answered = @answer.call(@posts.size + 1)
        answered = [0, ""] if answered == :silence
        @posts << Post.new(path, headers, body, [Process.clock_gettime(Process::CLOCK_MONOTONIC), answered.first])
        answered
      end
      return sleep if status.zero?

      socket.write("HTTP/1.1 #{status} X\r\n#{fields}Content-Length: 0\r\n\r\n")
    end
  end
end
