# Base64, Digest, OpenSSL's HMAC, SecureRandom.
module Base64
  class << self
    def encode64(bytes)
      lines = ''
      text = strict_encode64(bytes)
      at = 0
      while at < text.size
        lines << text[at, 60] << "\n"
        at += 60
      end
      lines
    end

    def strict_encode64(bytes)
      Rt.call(Rt::BASE64_ENCODE, bytes, false)
    end

    def urlsafe_encode64(bytes, options = nil)
      text = Rt.call(Rt::BASE64_ENCODE, bytes, true)
      text = text.delete('=') if options && options[:padding] == false
      text
    end

    def decode64(text)
      Rt.call(Rt::BASE64_DECODE, text, false, false)
    end

    def strict_decode64(text)
      Rt.call(Rt::BASE64_DECODE, text, false, true)
    end

    def urlsafe_decode64(text)
      Rt.call(Rt::BASE64_DECODE, text, true, true)
    end
  end
end

module Rt
  class << self
    def hex(bytes)
      text = ''
      bytes.each_byte { |byte| text << HEX[byte] }
      text
    end
  end

  HEX = (0..255).map { |byte| "#{byte < 16 ? '0' : ''}#{byte.to_s(16)}".freeze }.freeze
end

module Digest
  class Base
    class << self
      def digest(bytes)
        Rt.call(Rt::DIGEST, name.split('::')[-1], bytes)
      end

      def hexdigest(bytes)
        Rt.hex(digest(bytes))
      end

      def base64digest(bytes)
        Base64.strict_encode64(digest(bytes))
      end
    end

    def initialize
      @bytes = ''
    end

    def update(bytes)
      @bytes << bytes
      self
    end
    alias << update

    def reset
      @bytes = ''
      self
    end

    def digest(bytes = nil)
      self.class.digest(bytes || @bytes)
    end

    def hexdigest(bytes = nil)
      self.class.hexdigest(bytes || @bytes)
    end
    alias to_s hexdigest

    def base64digest(bytes = nil)
      self.class.base64digest(bytes || @bytes)
    end
  end

  class MD5 < Base; end
  class SHA1 < Base; end
  class SHA256 < Base; end
  class SHA384 < Base; end
  class SHA512 < Base; end

  # Also available without OpenSSL's name.
  module HMAC
    class << self
      def digest(name, key, bytes)
        name = name.is_a?(Class) ? name.name.split('::')[-1] : name.to_s
        Rt.call(Rt::HMAC, name, key, bytes)
      end

      def hexdigest(name, key, bytes)
        Rt.hex(digest(name, key, bytes))
      end

      def base64digest(name, key, bytes)
        Base64.strict_encode64(digest(name, key, bytes))
      end
    end
  end
end

module OpenSSL
  HMAC = Digest::HMAC

  # OpenSSL's names of digests, for HMAC.
  class Digest
    def self.new(name)
      ::Digest.const_get(name.to_s.upcase.delete('-')).new
    end
  end

  class << self
    # Whether two secrets are equal, in constant time.
    def secure_compare(one, other)
      Rt.call(Rt::EQUAL, one, other)
    end
    alias fixed_length_secure_compare secure_compare
  end
end

module SecureRandom
  ALPHANUMERIC = [*'A'..'Z', *'a'..'z', *'0'..'9'].freeze

  class << self
    def random_bytes(count = 16)
      Rt.call(Rt::RANDOM, count || 16)
    end
    alias bytes random_bytes

    def hex(count = 16)
      Rt.hex(random_bytes(count))
    end

    def base64(count = 16)
      Base64.strict_encode64(random_bytes(count))
    end

    def urlsafe_base64(count = 16, padding = false)
      Base64.urlsafe_encode64(random_bytes(count), padding: padding)
    end

    def uuid
      bytes = random_bytes(16)
      bytes.setbyte(6, bytes.getbyte(6) & 0x0f | 0x40)
      bytes.setbyte(8, bytes.getbyte(8) & 0x3f | 0x80)
      text = Rt.hex(bytes)
      "#{text[0, 8]}-#{text[8, 4]}-#{text[12, 4]}-#{text[16, 4]}-#{text[20, 12]}"
    end

    def alphanumeric(count = 16)
      text = ''
      count.times { text << ALPHANUMERIC[random_number(62)] }
      text
    end

    # A number below `limit` or in a Range; without a limit a Float from 0 to 1.
    def random_number(limit = 0)
      return limit.first + random_number((limit.exclude_end? ? limit.last : limit.last + 1) - limit.first) if limit.is_a?(Range)
      return integer(1 << 48).to_f / (1 << 48) if limit.nil? || limit == 0
      limit.is_a?(Float) ? random_number * limit : integer(limit)
    end
    alias rand random_number

    private

    # Uniform: without modulo bias.
    def integer(limit)
      raise ArgumentError, "invalid argument - #{limit}" if limit <= 0
      most = (1 << 48).div(limit) * limit
      while true
        number = 0
        random_bytes(6).each_byte { |byte| number = number * 256 + byte }
        return number % limit if number < most
      end
    end
  end
end
