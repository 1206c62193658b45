# frozen_string_literal: true

require "socket"

module Firebrick
  module Pure
    # Sends the body of a response, in all forms that Rack allows. Contract: as worker/native/src/body.rs, except that
    # large strings go in BODY frames; nothing is offered.
    class Body
      # Bodies up to this size, in bytes, travel in the RESPONSE frame.
      INLINE = 128 << 10

      def initialize(response, head, env)
        @response = response
        @head = head
        @env = env
      end

      # Sends head and body.
      def send(body)
        if @env["REQUEST_METHOD"] == "HEAD" || [204, 304].include?(@head.status)
          @response.whole(@head)
        elsif @head.take_over
          stream(@head.take_over)
        elsif body.instance_of?(Array) || body.is_a?(String)
          whole(Array(body))
        else
          send_object(body)
        end
      end

      private

      def send_object(body)
        file = open_file(body.to_path) if body.respond_to?(:to_path)
        return send_file(file, position(body)) if file
        return each(body) if body.respond_to?(:each)
        return stream(body) if body.respond_to?(:call)

        raise BadResponse, "the body responds to neither each nor call"
      end

      def must_be_string(part)
        raise TypeError, "the body yielded something that is not a String" unless part.is_a?(String)
      end

      def whole(parts)
        return one(parts.first) if parts.length == 1

        parts.each { |part| must_be_string(part) }
        total = parts.sum(&:bytesize)
        return @response.whole(@head, parts.map(&:b).join) if total <= INLINE

        @head.length = total
        @response.start(@head)
        parts.each { |part| @response.push(part) }
        @response.finish(@head)
      end

      # Sends the usual body, of one part. Its bytes are copied once.
      def one(part)
        must_be_string(part)
        return @response.whole(@head, part.b) if part.bytesize <= INLINE

        @head.length = part.bytesize
        @response.start(@head)
        @response.push(part)
        @response.finish(@head)
      end

      # Opens a regular file; nil when it cannot be opened: a pipe has no path, an unlinked file has lost it.
      def open_file(path)
        return if path.nil?

        # Opening a pipe without NONBLOCK would wait for its writer.
        file = File.open(path.to_s, File::RDONLY | File::NONBLOCK)
        return file if file.stat.file?

        file.close
        nil
      rescue SystemCallError, ArgumentError
        nil
      end

      # Returns the position of an open file or Tempfile. A file that has been read or sought in is sent from its
      # position, as its `each` would.
      def position(body)
        body.respond_to?(:pos) ? body.pos.to_i : 0
      rescue IOError, SystemCallError
        0
      end

      def send_file(file, from)
        from = [from, file.size].min
        size = file.size - from
        @head.length = size
        @response.start(@head)
        if @response.descriptors?
          @response.file(file, from, size) if size.positive?
        else
          file.seek(from)
          while (part = file.read(Response::PIECE))
            @response.push(part)
          end
        end
        @response.finish(@head)
      ensure
        file.close
      end

      def each(body)
        gathers = @head.finite? || body.respond_to?(:to_ary)
        writer = @response.open
        body.each do |part|
          must_be_string(part)
          @response.chunk(writer, @head, part, gathers) unless part.empty?
        end
        @response.finish(@head)
      end

      # Calls +callable+ with a socket whose other end goes to the front.
      def stream(callable)
        stream = @response.stream
        # Only an upgrade passes on bytes from the client; in other streams the app reads the end of the stream.
        upgraded = @head.status == 101
        stream.close_input unless upgraded
        @response.start(@head, Wire::Flag::STREAM, stream.sent)
        stream.release
        stream.own.autoclose = false
        Firebrick::Exchange.stream(callable, stream.own.fileno, @env, upgraded)
        @response.finish(@head)
      end
    end
  end
end
