# frozen_string_literal: true

require "firebrick/wire"

module Firebrick
  module Pure
    # Raised when the other side breaks a rule of docs/internals/wire.md.
    class Malformed < StandardError
      def message
        "malformed frame: #{super}"
      end
    end

    # Frames of docs/internals/wire.md: their headers, and the payloads that are numbers.
    module Frames
      module_function

      def frame(kind, id = 0, payload = "", flags = 0)
        [payload.bytesize, kind, flags, 0, id].pack("VCCvV") << payload
      end

      # Sets the number of the route in a frame.
      def routed(frame, route)
        frame.setbyte(6, route & 0xff)
        frame.setbyte(7, route >> 8)
        frame
      end

      # Returns the payload's length from the header at +at+. Reads single bytes, because `unpack` makes a string and an
      # array.
      def length(bytes, at)
        length = number(bytes, at)
        kind = bytes.getbyte(at + 4)
        raise Malformed, "payload is longer than a frame may be" if length > Wire::MAX_PAYLOAD
        unless bytes.getbyte(at + 6).zero? && bytes.getbyte(at + 7).zero?
          raise Malformed, "the number of a route in a frame that has none"
        end
        raise Malformed, "unknown kind" if kind < Wire::Frame::REQUEST || kind > Wire::Frame::HEAP

        length
      end

      # Returns the u32 at +at+.
      def number(bytes, at)
        bytes.getbyte(at) | (bytes.getbyte(at + 1) << 8) | (bytes.getbyte(at + 2) << 16) | (bytes.getbyte(at + 3) << 24)
      end

      # Encodes PROFILE with the only record that this worker has: what it lacks.
      def no_profile(order)
        lacks = "it runs the worker in plain Ruby (#{RUBY_ENGINE}), and profiles need CRuby with the native part"
        frame(Wire::Frame::PROFILE, order, [Wire::Profile::LACKS, lacks.bytesize].pack("CC") << lacks, Wire::Flag::LAST)
      end

      # Encodes TRACES. Each trace is a link, an id and lines.
      def traces(list)
        room = Wire::Traces::MOST_BYTES
        payload = "".b
        list.each do |link, id, lines|
          lines = lines.first(Wire::Traces::MOST_LINES).map { |line| line.b.byteslice(0, Wire::Traces::LONGEST) }
          lines = lines.take_while { |line| (room -= line.bytesize + 2) >= 0 }
          payload << [link, id, lines.length].pack("VVv")
          lines.each { |line| payload << [line.bytesize].pack("v") << line }
        end
        frame(Wire::Frame::TRACES, 0, payload)
      end
    end
  end
end
