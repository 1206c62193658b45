# frozen_string_literal: true

require "firebrick/pure/env"
require "firebrick/pure/frames"
require "firebrick/pure/names"

module Firebrick
  module Pure
    # A decoded REQUEST frame.
    class Request
      REPEATED = 0x80

      # The part of fixed length at the beginning, including the length of the method; its end. The numbers are
      # signed: JRuby makes large integers of unsigned ones.
      NUMBERS = "CCCCvvq<q<C"
      VERB = 25
      # The offset of the body's length.
      LENGTH = 16
      # Formats of the five numbers behind a method, by its length in bytes.
      TARGETS = Array.new(256) { |length| "@#{VERB + length}V5" }.freeze

      # Flags: times are to be measured; the client offers to switch to another protocol.
      MEASURE = 1
      SWITCH = 2

      NO_BODY = 0
      INLINE = 1
      IN_DESCRIPTOR = 2
      # The body comes in frames, and is in a descriptor when all of it has come.
      IN_FRAMES = 3

      attr_reader :version, :asked_us, :remote_port, :body_length, :verb, :target, :path, :query, :remote_addr,
                  :server_name, :server_port, :body

      # Returns the bytes of the body that follow in frames; nil if it does not come in frames.
      def self.announced(payload)
        payload.byteslice(LENGTH, 8).unpack1("Q<") if payload.getbyte(2) == IN_FRAMES
      end

      # Returns whether times are to be measured.
      def self.measures?(payload)
        payload.getbyte(3).to_i.anybits?(MEASURE)
      end

      # descriptor:: the one that came with the frame
      def initialize(payload, descriptor)
        @bytes = payload
        read_numbers
        read_target
        @remote_addr = text(1)
        @server_name = text(2)
        @server_port = text(1)
        # Codes, names and values alternate, which needs few objects.
        @fields = []
        @count.times { read_field }
        read_body(descriptor)
      end

      # Yields for each field its code (0 for a name that is not in the table), with the bit REPEATED if the name has
      # come before; the name, or nil; and the value.
      def each_field
        at = 0
        while at < @fields.length
          yield @fields[at], @fields[at + 1], @fields[at + 2]
          at += 3
        end
      end

      def https?
        @scheme == 1
      end

      # Returns whether the client offers to switch to another protocol.
      def switch?
        @flags.anybits?(SWITCH)
      end

      private

      def read_numbers
        @version, @scheme, @form, @flags, @count, @remote_port, @asked_us, @body_length, @at = @bytes.unpack(NUMBERS)
        raise Malformed, "payload ends too early" if @at.nil? || VERB + @at > @bytes.bytesize
        return if Env::VERSIONS.key?(@version) && @scheme < 2 && @form < 4 && @flags < 4

        raise Malformed, "version, scheme or flags of REQUEST"
      end

      def read_target
        @verb = @bytes.byteslice(VERB, @at)
        length, path, path_length, query, query_length = target_numbers
        @target = slice(length)
        if path + path_length > length || query + query_length > length
          raise Malformed, "path or query reaches outside the target"
        end

        @path = @target.byteslice(path, path_length)
        @query = @target.byteslice(query, query_length)
      end

      def read_field
        code = byte
        known = code & 0x7f
        raise Malformed, "unknown name code" if known > Wire::NAMES.length

        @fields << code << (known.zero? ? text(2) : nil) << text(4)
      end

      def read_body(descriptor)
        rest = @bytes.bytesize - @at
        fits = case @form
               when NO_BODY then rest.zero? && @body_length.zero?
               when INLINE then rest == @body_length
               else rest.zero? && descriptor
               end
        raise Malformed, "body and its length do not agree" unless fits

        @body = @form == INLINE ? slice(rest) : descriptor
      end

      # Reads a length of +size+ bytes and as many bytes of text. Reads single bytes, because `unpack` makes a string
      # and an array.
      def text(size)
        length = byte
        length |= byte << 8 if size > 1
        length |= (byte << 16) | (byte << 24) if size > 2
        slice(length)
      end

      def byte
        value = @bytes.getbyte(@at) || raise(Malformed, "payload ends too early")
        @at += 1
        value
      end

      def target_numbers
        format = TARGETS[@at]
        @at += VERB + 20
        raise Malformed, "payload ends too early" if @at > @bytes.bytesize

        @bytes.unpack(format)
      end

      def slice(length)
        raise Malformed, "payload ends too early" if @at + length > @bytes.bytesize

        part = @bytes.byteslice(@at, length)
        @at += length
        part
      end
    end
  end
end
