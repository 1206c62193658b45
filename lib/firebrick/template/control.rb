# frozen_string_literal: true

module Firebrick
  class Template
    # The socket to the front. A message is a u32 length and strings separated by NUL; descriptors come with its first
    # byte.
    class Control
      FORK = "fork"
      BOOT = "boot"

      def initialize(descriptor)
        @io = IO.for_fd(descriptor, "r+b")
        @io.close_on_exec = true
        @io.sync = true
        @bytes = "".b
        @descriptors = []
      end

      # Waits for messages; empty when `bell` rang, nil when the front is gone.
      def read(bell)
        ready, = IO.select([@io, bell].compact)
        return [] unless ready.include?(@io)

        bytes, descriptors = Native.receive(@io.fileno)
        return unless bytes

        @bytes << bytes
        @descriptors.concat(descriptors)
        messages
      end

      # Waits for one message or more.
      def wait
        loop do
          messages = read(nil)
          exit!(0) unless messages
          return messages unless messages.empty?
        end
      end

      def tell(*words)
        text = words.map { |word| word.to_s.b.delete("\0") }.join("\0")
        @io.write([text.bytesize].pack("V") << text)
      rescue SystemCallError
        # The front is gone; the next read says so.
        nil
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

      # `fork` takes all that came with it: the front sends the next one after the answer only.
      def descriptors_of(words)
        case words.first
        when BOOT then @descriptors.shift(1)
        when FORK then @descriptors.shift(@descriptors.length)
        else []
        end
      end
    end
  end
end
