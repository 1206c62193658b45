# frozen_string_literal: true

# HPACK (RFC 7541) for tests. The encoder can write anything: each field chooses its representation, names and values are any bytes.

module Hpack
  # Lengths of the Huffman codes of all bytes and of EOS (appendix B). The code is canonical, so they define it.
  LENGTHS = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28,
    28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6,
    6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7,
    8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7,
    15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24,
    23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23,
    23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26,
    26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20,
    21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27,
    27, 27, 26, 30
  ].freeze

  CODES = begin
    code = 0
    (1..30).each_with_object({}) do |length, codes|
      LENGTHS.each_with_index do |own, symbol|
        next unless own == length

        codes[code.to_s(2).rjust(length, "0")] = symbol
        code += 1
      end
      code <<= 1
    end.freeze
  end

  STATIC = [
    [":authority", ""], [":method", "GET"], [":method", "POST"], [":path", "/"], [":path", "/index.html"],
    [":scheme", "http"], [":scheme", "https"], [":status", "200"], [":status", "204"], [":status", "206"],
    [":status", "304"], [":status", "400"], [":status", "404"], [":status", "500"], ["accept-charset", ""],
    ["accept-encoding", "gzip, deflate"], ["accept-language", ""], ["accept-ranges", ""], ["accept", ""],
    ["access-control-allow-origin", ""], ["age", ""], ["allow", ""], ["authorization", ""], ["cache-control", ""],
    ["content-disposition", ""], ["content-encoding", ""], ["content-language", ""], ["content-length", ""],
    ["content-location", ""], ["content-range", ""], ["content-type", ""], ["cookie", ""], ["date", ""], ["etag", ""],
    ["expect", ""], ["expires", ""], ["from", ""], ["host", ""], ["if-match", ""], ["if-modified-since", ""],
    ["if-none-match", ""], ["if-range", ""], ["if-unmodified-since", ""], ["last-modified", ""], ["link", ""],
    ["location", ""], ["max-forwards", ""], ["proxy-authenticate", ""], ["proxy-authorization", ""], ["range", ""],
    ["referer", ""], ["refresh", ""], ["retry-after", ""], ["server", ""], ["set-cookie", ""],
    ["strict-transport-security", ""], ["transfer-encoding", ""], ["user-agent", ""], ["vary", ""], ["via", ""],
    ["www-authenticate", ""]
  ].freeze

  module_function

  # An integer with a prefix of that many bits; +first+ holds the bits before it.
  def integer(number, bits, first = 0)
    most = (1 << bits) - 1
    return [first | number].pack("C") if number < most

    bytes = [first | most]
    number -= most
    while number >= 128
      bytes << ((number & 127) | 128)
      number >>= 7
    end
    (bytes << number).pack("C*")
  end

  def string(text)
    integer(text.bytesize, 7) + text.b
  end

  # A literal without indexing, with its name in full.
  def literal(name, value)
    "\x00".b + string(name) + string(value)
  end

  # A literal that is added to the dynamic table.
  def indexed_literal(name, value)
    "\x40".b + string(name) + string(value)
  end

  # A field of a table.
  def indexed(index)
    integer(index, 7, 0x80)
  end

  def block(fields)
    fields.map { |name, value| literal(name, value.to_s) }.join
  end

  # Decodes blocks; keeps the dynamic table of a connection.
  class Decoder
    class Malformed < StandardError; end

    def initialize
      @table = []
    end

    def decode(block)
      @bytes = block.b
      @at = 0
      fields = []
      field = nil
      fields << field if (field = one) while @at < @bytes.bytesize
      fields
    end

    private

    def one
      first = @bytes.getbyte(@at)
      if first & 0x80 != 0 then entry(take(7))
      elsif first & 0x40 != 0 then named(6).tap { |field| @table.unshift(field) }
      elsif first & 0x20 != 0 then take(5) && nil
      else named(4)
      end
    end

    def named(bits)
      index = take(bits)
      name = index.zero? ? text : entry(index).first
      [name, text]
    end

    def entry(index)
      (index <= STATIC.size ? STATIC[index - 1] : @table[index - STATIC.size - 1]) or raise Malformed, "no entry #{index}"
    end

    def take(bits)
      number = @bytes.getbyte(@at) & ((1 << bits) - 1)
      @at += 1
      return number if number < (1 << bits) - 1

      shift = 0
      loop do
        byte = @bytes.getbyte(@at) or raise Malformed, "a number without an end"
        @at += 1
        number += (byte & 127) << shift
        shift += 7
        return number if byte < 128
      end
    end

    def text
      huffman = @bytes.getbyte(@at) & 0x80 != 0
      length = take(7)
      bytes = @bytes.byteslice(@at, length)
      @at += length
      huffman ? expand(bytes) : bytes
    end

    def expand(bytes)
      out = []
      code = +""
      bytes.unpack1("B*").each_char do |bit|
        code << bit
        next unless (symbol = CODES[code])

        out << symbol
        code = +""
      end
      raise Malformed, "padding #{code}" unless code.length < 8 && !code.include?("0")

      out.pack("C*")
    end
  end
end
