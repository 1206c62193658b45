# frozen_string_literal: true

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
      # The version of docs/internals/wire.md.
      WIRE = 7
      HEADER = 12
      # The largest payload, in bytes.
      LONGEST = (1 << 20) + (64 << 10)
      # Bytes of BODY that may be in flight when a response begins.
      WINDOW = 1 << 20

      # From the front.
      REQUEST = 0x01
      GIVE = 0x02
      ABORT = 0x03
      DRAIN = 0x04
      LEND = 0x05
      RESUME = 0x06
      PROMOTE = 0x07
      COLLECT = 0x08
      INPUT = 0x09

      # To the front.
      RESPONSE = 0x81
      BODY = 0x82
      FINISH = 0x83
      INTERIM = 0x84
      HIJACK = 0x85
      FILE = 0x86
      READY = 0x87
      STOPPING = 0x88
      TRACES = 0x8b
      RETURNED = 0x8c
      RESUMED = 0x8d
      EXTEND = 0x8e
      DUE = 0x8f
      COLLECTED = 0x90
      HELLO = 0x91

      # Flags.
      WHOLE = 0x01
      FAILED = 0x01
      STREAM = 0x02
      DESCRIPTOR = 0x80

      module_function

      def frame(kind, id = 0, payload = "", flags = 0)
        [payload.bytesize, kind, flags, 0, id].pack("VCCvV") << payload
      end

      # Returns the payload's length from the header at +at+. Reads single bytes, because `unpack` makes a string and an
      # array.
      def length(bytes, at)
        length = number(bytes, at)
        kind = bytes.getbyte(at + 4)
        raise Malformed, "payload is longer than a frame may be" if length > LONGEST
        unless bytes.getbyte(at + 6).zero? && bytes.getbyte(at + 7).zero?
          raise Malformed, "reserved bytes of the header are not zero"
        end
        raise Malformed, "unknown kind" if kind < REQUEST || kind > INPUT

        length
      end

      # Returns the u32 at +at+.
      def number(bytes, at)
        bytes.getbyte(at) | (bytes.getbyte(at + 1) << 8) | (bytes.getbyte(at + 2) << 16) | (bytes.getbyte(at + 3) << 24)
      end

      # Encodes TRACES. Each trace is a link, an id and lines.
      def traces(list)
        room = 512 << 10
        payload = "".b
        list.each do |link, id, lines|
          lines = lines.first(200).map { |line| line.b.byteslice(0, 1000) }
          lines = lines.take_while { |line| (room -= line.bytesize + 2) >= 0 }
          payload << [link, id, lines.length].pack("VVv")
          lines.each { |line| payload << [line.bytesize].pack("v") << line }
        end
        frame(TRACES, 0, payload)
      end
    end
  end
end
