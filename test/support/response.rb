# frozen_string_literal: true

# A response as received. Headers keep their order and repetition; +framing+ tells how the end of the body was found.

Response = Struct.new(:version, :status, :reason, :headers, :body, :framing, :trailers, :interim, :raw_head,
                      keyword_init: true) do
  # The value of the only field of that name; nil when absent.
  def [](name)
    values = all(name)
    raise Minitest::Assertion, "#{name} occurs #{values.size} times:\n#{raw_head}" if values.size > 1

    values.first
  end

  def all(name)
    headers.select { |key, _| key.casecmp?(name) }.map(&:last)
  end

  # The options of the Connection field, in lower case.
  def connection
    all("connection").flat_map { |value| value.downcase.split(/\s*,\s*/) }
  end

  def json
    JSON.parse(body)
  end
end
