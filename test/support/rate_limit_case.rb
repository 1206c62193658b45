# frozen_string_literal: true

# The base of tests with rate limits.

require "support/case"

class RateLimitCase < Case
  PAGE = { "index.html" => "hello" }.freeze

  def setup
    firebrick_only
  end

  def limited(limits, files: PAGE, settings: {}, **options)
    start(files:, settings: { rate_limits: limits, **settings }, **options)
  end

  # Returns the statuses of that many requests.
  def statuses(count, own, method: "GET", path: "/", headers: {}, connection: connect(own))
    Array.new(count) do
      connection.write(request(method, path, headers))
      connection.read_response(method).status
    end
  end
end
