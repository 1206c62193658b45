# frozen_string_literal: true

# Reads responses strictly by RFC 9112. Anything that another parser could read differently fails the test: a bare LF, two
# lengths, a body where none is allowed, a wrong length.

require "support/response"

# The server sent something that is not HTTP/1.1.
class MalformedResponse < Minitest::Assertion; end

# The connection ended inside a response.
class TruncatedResponse < Minitest::Assertion; end

class ResponseReader
  TOKEN = /[!#$%&'*+\-.^_`|~0-9A-Za-z]+/n
  STATUS_LINE = %r{\AHTTP/(1\.[01]) ([1-5][0-9][0-9]) ([\t\x20-\x7e\x80-\xff]*)\z}n
  FIELD = /\A(#{TOKEN}):[ \t]*((?:[\x21-\x7e\x80-\xff](?:[\t\x20-\x7e\x80-\xff]*[\x21-\x7e\x80-\xff])?)?)[ \t]*\z/n

  def initialize(source)
    @source = source
  end

  # The final response to a request with +method+; 1xx responses before it are in +interim+.
  def read(method)
    interim = []
    loop do
      response = read_head
      return read_body(response, method).tap { |it| it.interim = interim } if response.status >= 200 || response.status == 101

      malformed "a 1xx response with a length", response if response.all("content-length").any? || response.all("transfer-encoding").any?
      interim << response
    end
  end

  # Reads only the head of the next response.
  def read_head
    raw = @source.read_through("\r\n\r\n")
    lines = raw.delete_suffix("\r\n\r\n").split("\r\n", -1)
    match = STATUS_LINE.match(lines.shift) or raise MalformedResponse, "status line in #{raw.inspect}"
    headers = lines.map { |line| field(line, raw) }
    Response.new(version: match[1], status: match[2].to_i, reason: match[3], headers: headers, body: +"".b,
                 trailers: [], interim: [], raw_head: raw)
  end

  # Reads the body for a head.
  def read_body(response, method)
    response.framing = framing(response, method)
    case response.framing
    when :none then nil
    when :length then response.body = @source.read_exactly(Integer(response["content-length"], 10))
    when :chunked then read_chunks(response)
    when :close then response.body = @source.read_to_end
    end
    response
  end

  private

  def field(line, raw)
    match = FIELD.match(line) or raise MalformedResponse, "field line #{line.inspect} in #{raw.inspect}"
    [match[1], match[2]]
  end

  def framing(response, method)
    lengths = response.all("content-length")
    codings = response.all("transfer-encoding")
    check_lengths(response, lengths, codings)
    return :none if method == "HEAD" || [101, 204, 304].include?(response.status)
    return :chunked if codings.any?

    lengths.any? ? :length : :close
  end

  def check_lengths(response, lengths, codings)
    malformed "both a length and a transfer coding", response if lengths.any? && codings.any?
    malformed "#{lengths.size} lengths", response if lengths.size > 1
    malformed "an invalid length", response if lengths.any? && lengths.first !~ /\A[0-9]+\z/
    malformed "an unknown transfer coding", response if codings.any? && codings != ["chunked"]
    malformed "a length in a 204", response if response.status == 204 && (lengths + codings).any?
  end

  def read_chunks(response)
    loop do
      line = @source.read_through("\r\n").delete_suffix("\r\n")
      raise MalformedResponse, "chunk size #{line.inspect}" unless line.match?(/\A[0-9a-fA-F]{1,16}\z/)

      size = line.to_i(16)
      break if size.zero?

      response.body << @source.read_exactly(size)
      crlf = @source.read_exactly(2)
      raise MalformedResponse, "#{crlf.inspect} after a chunk" unless crlf == "\r\n"
    end
    read_trailers(response)
  end

  def read_trailers(response)
    loop do
      line = @source.read_through("\r\n").delete_suffix("\r\n")
      return if line.empty?

      response.trailers << field(line, line)
    end
  end

  def malformed(what, response)
    raise MalformedResponse, "#{what}:\n#{response.raw_head}"
  end
end
