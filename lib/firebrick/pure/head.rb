# frozen_string_literal: true

require "firebrick/errors"

module Firebrick
  module Pure
    # Status and headers of a response, per Rack 2.2 and Rack 3. Contract: as ext/worker/src/head.rs.
    class Head
      UNSENDABLE = /[\r\n\0]/n.freeze
      # Fields that say how the body is sent.
      MEANINGS = { "content-length" => :finite, "transfer-encoding" => :coded, "x-sendfile" => :names_file,
                   "x-accel-redirect" => :names_file }.freeze
      # A frame must hold the head and a body.
      LARGEST = 512 << 10
      # Bytes that a field takes beside its name and value.
      OVERHEAD = 4

      # The status; `rack.hijack` of the headers.
      attr_reader :status, :take_over

      # limit:: bytes that the fields may have
      def initialize(status, headers, limit)
        @status = read_status(status)
        @left = [limit, LARGEST].min
        @count = 0
        @fields = "".b
        @finite = @coded = @names_file = false
        read_headers(headers)
      end

      # Whether the body has a known length.
      def finite?
        @finite
      end

      # Whether the app has encoded the body itself (Transfer-Encoding).
      def coded?
        @coded
      end

      # Whether the app names a file that may take the place of the body.
      def names_file?
        @names_file
      end

      # Adds Content-Length, if there is none and the app has not encoded the body.
      def length=(length)
        add("content-length", length.to_s) unless @finite || @coded
      end

      # As in RESPONSE and INTERIM.
      def pack(times = "")
        [@status, @count].pack("vv") << times << @fields
      end

      private

      def read_status(value)
        number = value.to_i
        raise BadResponse, "status is not a number" unless number.is_a?(Integer)
        raise BadResponse, "status #{number} is not in 100 to 599" unless number.between?(100, 599)

        number
      end

      def read_headers(headers)
        headers.each do |*pair|
          pair = pair.first if pair.length == 1 && pair.first.is_a?(Array)
          raise BadResponse, "headers do not yield names and values" unless pair.length == 2

          read_pair(pair[0].to_s, pair[1])
        end
      end

      def read_pair(name, value)
        if name.start_with?("rack.")
          @take_over = value if name == "rack.hijack"
        elsif value.is_a?(Array)
          value.each { |element| add(name, element.to_s) }
        elsif !value.nil?
          value = value.to_s
          value.include?("\n") ? add_lines(name, value) : add(name, value)
        end
      end

      def add_lines(name, value)
        value.b.split("\n").each { |line| add(name, line) unless line.empty? }
      end

      def add(name, value)
        name = name.b
        value = value.b
        if name.match?(UNSENDABLE) || value.match?(UNSENDABLE)
          raise BadResponse, "header #{name.inspect} contains CR, LF or NUL"
        end

        @left -= name.bytesize + value.bytesize + OVERHEAD
        @count += 1
        raise BadResponse, "response head is larger than max_head" if @left.negative? || @count > 0xffff

        note(name)
        @fields << [name.bytesize, value.bytesize].pack("vV") << name << value
      end

      def note(name)
        case MEANINGS[name] || MEANINGS[name.downcase]
        when :finite then @finite = true
        when :coded then @coded = true
        when :names_file then @names_file = true
        end
      end
    end
  end
end
