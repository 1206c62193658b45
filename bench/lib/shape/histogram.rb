# frozen_string_literal: true

require "zlib"

module Bench
  module Shape
    # Reads the histograms of `firebrick bench --json`: HdrHistogram's V2 format, compressed, in base64.
    module Histogram
      # Bytes of the compressed head (cookie, length) and of the head inside: cookie, length, offset, digits, lowest, highest, ratio.
      OUTER = 8
      INNER = 40

      module_function

      # Yields each value with the number of times that it was recorded.
      def each(text)
        head, counts = parts(text)
        _, _, _, digits, lowest = head.unpack("NNNNQ>")
        half = 1 << (Math.log2(2 * (10**digits)).ceil - 1)
        unit = Math.log2(lowest).floor
        index = 0
        numbers(counts) do |number|
          if number.negative?
            index -= number
          else
            yield value(index, half, unit), number if number.positive?
            index += 1
          end
        end
      end

      # Returns how many values are at most this large.
      def count_up_to(text, most)
        count = 0
        each(text) { |value, times| count += times if value <= most }
        count
      end

      def parts(text)
        plain = Zlib::Inflate.inflate(text.unpack1("m").byteslice(OUTER..))
        [plain.byteslice(0, INNER), plain.byteslice(INNER..)]
      end

      def value(index, half, unit)
        bucket = (index / half) - 1
        bucket.negative? ? index << unit : ((index % half) + half) << (bucket + unit)
      end

      # The numbers of a sequence of ZigZag varints; the ninth byte of one has eight bits.
      def numbers(bytes)
        number = shift = 0
        bytes.each_byte do |byte|
          last = shift == 56
          number |= (last ? byte : byte & 0x7f) << shift
          shift += 7
          next if byte >= 0x80 && !last

          yield (number >> 1) ^ -(number & 1)
          number = shift = 0
        end
      end
    end
  end
end
