# frozen_string_literal: true

# The validators of a file that a client has, in all the forms that it may send.

require "time"

Validators = Struct.new(:etag, :modified) do
  def self.of(response)
    new(response["etag"], Time.httpdate(response["last-modified"]))
  end

  def weak
    "W/#{etag.delete_prefix('W/')}"
  end

  # Last-Modified, shifted by seconds, in the preferred format of RFC 9110.
  def date(offset = 0)
    (modified + offset).httpdate
  end

  def rfc850(offset = 0)
    (modified + offset).utc.strftime("%A, %d-%b-%y %H:%M:%S GMT")
  end

  def asctime(offset = 0)
    (modified + offset).utc.strftime("%a %b %e %H:%M:%S %Y")
  end
end

# The parts of a multipart/byteranges body, read strictly (RFC 2046, 5.1.1).
module ByteRanges
  Part = Struct.new(:type, :from, :to, :total, :body)

  module_function

  def parts(response)
    boundary = response["content-type"][%r{\Amultipart/byteranges; ?boundary="?([^"]+)"?\z}, 1]
    raise Minitest::Assertion, "no boundary in #{response['content-type'].inspect}" unless boundary

    body = response.body.delete_prefix("\r\n")
    raise Minitest::Assertion, "no closing boundary" unless body.sub!(/\r\n--#{Regexp.escape(boundary)}--(\r\n)?\z/n, "")
    raise Minitest::Assertion, "no opening boundary" unless body.sub!(/\A--#{Regexp.escape(boundary)}\r\n/n, "")

    body.split("\r\n--#{boundary}\r\n", -1).map { |part| part(part) }
  end

  def part(bytes)
    head, body = bytes.split("\r\n\r\n", 2)
    fields = head.split("\r\n").to_h { |line| line.split(/:[ \t]*/, 2) }.transform_keys(&:downcase)
    range = fields["content-range"].match(%r{\Abytes (\d+)-(\d+)/(\d+)\z}) or raise Minitest::Assertion, "Content-Range of a part: #{head}"
    Part.new(fields["content-type"], *range.captures.map(&:to_i), body)
  end
end
