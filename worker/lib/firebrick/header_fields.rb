# frozen_string_literal: true

module Firebrick
  # Reads headers into a list, for code that must not call the app while it processes them.
  module HeaderFields
    # Returns names and values, alternating. All of them are Strings, Arrays of Strings, or nil, except for fields meant
    # for the server.
    #
    # most:: the limit for the bytes of names and values; the headers may be endless
    def fields(headers, most)
      fields = []
      headers.each do |*pair|
        name, value = field(pair)
        raise BadResponse, "response head is larger than max_head" if (most -= size(name, value)).negative?

        fields.push(name, value)
      end
      fields
    end

    private

    # Splits one yielded pair.
    def field(pair)
      pair = pair.first if pair.length == 1 && pair.first.is_a?(Array)
      raise BadResponse, "headers do not yield names and values" if pair.length < 2

      name = pair[0].to_s
      [name, name.start_with?("rack.") ? pair[1] : plain(pair[1])]
    end

    # Returns the size of a field, including the overhead of a field.
    def size(name, value)
      name.bytesize + 4 + (value.is_a?(Array) ? value.sum { |one| one.bytesize + 4 } : value.to_s.bytesize)
    end

    def plain(value)
      case value
      when nil, String then value
      when Array then value.map(&:to_s)
      else value.to_s
      end
    end
  end
end
