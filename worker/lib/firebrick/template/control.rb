# frozen_string_literal: true

require "firebrick/wire"

module Firebrick
  class Template
    # The socket to the front. A message is a u32 length and strings separated by NUL; descriptors arrive with its first
    # byte.
    class Control
      # The number of descriptors that come with `fork`.
      attr_accessor :links

      def initialize(descriptor, links = 0)
        @links = links
        @io = IO.for_fd(descriptor, "r+b")
        @io.close_on_exec = true
        @io.sync = true
        @bytes = "".b
        @descriptors = []
      end

      # Waits for messages. Returns none when `bell` is readable, nil when the front has exited.
      def read(bell)
        ready, = IO.select([@io, bell].compact)
        ready.include?(@io) ? receive : []
      end

      # Returns the messages that have arrived; nil when the front has exited.
      def receive
        bytes, descriptors = Native.receive(@io.fileno)
        return unless bytes

        @bytes << bytes
        @descriptors.concat(descriptors)
        messages
      end

      # Waits for at least one message.
      def wait
        loop do
          messages = read(nil)
          exit!(0) unless messages
          return messages unless messages.empty?
        end
      end

      def send_message(*words)
        text = words.map { |word| word.to_s.b.delete("\0") }.join("\0")
        @io.write([text.bytesize].pack("V") << text)
      rescue SystemCallError
        # The front has exited; the next read returns nil.
        nil
      end

      # Reports that the app is loaded, with facts about it: pairs.
      def booted(facts)
        send_message(Wire::Report::BOOTED, *facts.flatten)
      end

      def to_io
        @io
      end

      def close
        @io.close
      end

      private

      def messages
        found = []
        while (length = @bytes.unpack1("V")) && @bytes.bytesize >= length + 4
          words = @bytes.slice!(0, length + 4).byteslice(4..).force_encoding(Encoding::UTF_8).split("\0", -1)
          found << [words.first, words.drop(1), descriptors_of(words)]
        end
        found
      end

      # Descriptors of several messages may have arrived.
      def descriptors_of(words)
        case words.first
        when Wire::Order::BOOT then @descriptors.shift(1)
        when Wire::Order::FORK then @descriptors.shift(@links)
        when Wire::Order::SERVICE then @descriptors.shift(2)
        else []
        end
      end
    end
  end
end
