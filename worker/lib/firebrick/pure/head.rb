# frozen_string_literal: true

require "firebrick/errors"

module Firebrick
  module Pure
    # Encodes status and headers of a response, per Rack 2.2 and Rack 3. Contract: as worker/native/src/head.rs.
    class Head
      UNSENDABLE = /[\r\n\0]/n.freeze
      # Fields that determine how the body is sent.
      MEANINGS = { "content-length" => :finite, "transfer-encoding" => :coded, "x-sendfile" => :names_file,
                   "x-accel-redirect" => :names_file }.freeze
      # A frame must hold the head and a body.
      LARGEST = 512 << 10
      # Bytes that a field takes beside its name and value: counted for the limit, and in the frame.
      OVERHEAD = 4
      LENGTHS = 6
      # The number of field names that are cached.
      NAMES = 256

      # The name of a field, and the last field of that name, because most responses repeat it. Frozen, so that
      # threads may share it.
      class Name
        attr_reader :bytes, :meaning, :last

        def initialize(name)
          @bytes = name.b.freeze
          @meaning = MEANINGS[@bytes.downcase]
          @last = Field.new(nil, nil)
          raise BadResponse, "header #{name.inspect} contains CR, LF or NUL" if @bytes.match?(UNSENDABLE)
        end

        # Returns the encoded field with this value, a String.
        def field(value)
          last = @last
          return last.bytes if last.value == value

          raise BadResponse, "header #{@bytes.inspect} contains CR, LF or NUL" if value.b.match?(UNSENDABLE)

          bytes = ([@bytes.bytesize, value.bytesize].pack("vV") << @bytes << value.b).freeze
          # One assignment: another thread sees both parts or neither.
          @last = Field.new(String.new(value).freeze, bytes) if bytes.bytesize < 256
          bytes
        end
      end

      # A value and the bytes of the whole field.
      class Field
        attr_reader :value, :bytes

        def initialize(value, bytes)
          @value = value
          @bytes = bytes
        end
      end

      @names = {}.freeze
      @lock = Mutex.new

      class << self
        # Returns the Name. The table is replaced, never changed, so it is read without a lock.
        def name(name)
          @names[name] || remember(name)
        end

        private

        def remember(name)
          made = Name.new(name)
          @lock.synchronize do
            @names = @names.merge(name.dup.freeze => made).freeze if @names.length < NAMES && made.bytes.bytesize < 64
          end
          made
        end
      end

      # The status; `rack.hijack` of the headers.
      attr_reader :status, :take_over
      # The number of fields, and their bytes.
      attr_reader :count, :fields

      # limit:: bytes that the fields may have
      def initialize(status, headers, limit)
        @status = read_status(status)
        @left = [limit, LARGEST].min
        @count = 0
        @fields = "".b
        @finite = @coded = @names_file = false
        @protocol = nil
        read_headers(headers)
      end

      # Returns whether the body has a known length.
      def finite?
        @finite
      end

      # Returns whether the app has encoded the body itself (Transfer-Encoding).
      def coded?
        @coded
      end

      # Returns whether the response names the protocol that the connection switches to.
      def protocol?
        !@protocol.nil?
      end

      # Returns whether the response names a file that may replace the body.
      def names_file?
        @names_file
      end

      # Adds Content-Length, if there is none and the app has not encoded the body.
      def length=(length)
        add("content-length", length.to_s) unless @finite || @coded
      end

      # Encodes the head as in INTERIM.
      def pack
        [@status, @count].pack("vv") << @fields
      end

      private

      def read_status(value)
        number = value.to_i
        raise BadResponse, "status is not a number" unless number.is_a?(Integer)
        raise BadResponse, "status #{number} is not in 100 to 599" unless number.between?(100, 599)

        number
      end

      def read_headers(headers)
        return headers.each { |name, value| read_pair(name.to_s, value) } if headers.is_a?(Hash)

        headers.each do |*pair|
          pair = pair.first if pair.length == 1 && pair.first.is_a?(Array)
          raise BadResponse, "headers do not yield names and values" unless pair.length == 2

          read_pair(pair[0].to_s, pair[1])
        end
      end

      def read_pair(name, value)
        if name.start_with?("rack.")
          @take_over = value if name == "rack.hijack"
          @protocol = value if name == "rack.protocol"
        elsif value.is_a?(String)
          add_lines(name, value)
        elsif value.is_a?(Array)
          value.each { |element| add(name, element.to_s) }
        elsif !value.nil?
          add_lines(name, value.to_s)
        end
      end

      # In Rack 2 a value has one line for each of several values.
      def add_lines(name, value)
        return add(name, value) unless value.include?("\n")

        value.b.split("\n").each { |line| add(name, line) unless line.empty? }
      end

      def add(name, value)
        name = Head.name(name)
        bytes = name.field(value)
        @left -= bytes.bytesize - LENGTHS + OVERHEAD
        @count += 1
        raise BadResponse, "response head is larger than max_head" if @left.negative? || @count > 0xffff

        note(name.meaning) if name.meaning
        @fields << bytes
      end

      def note(meaning)
        case meaning
        when :finite then @finite = true
        when :coded then @coded = true
        when :names_file then @names_file = true
        end
      end
    end
  end
end
