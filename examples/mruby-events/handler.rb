# frozen_string_literal: true

# GET /events/NAME subscribes to a channel, POST /events/NAME publishes the body to it.

REDIS = Redis.new(url: ENV.fetch("REDIS_URL", "redis://127.0.0.1:6379/0"))

# An open-ended response: each yielded String is sent at once. When the browser disconnects, the subscription ends.
class Events
  def initialize(channel)
    @channel = channel
  end

  def each
    yield "retry: 1000\n\n"
    REDIS.subscribe(@channel) do |on|
      on.message { |_, text| yield "#{text.lines.map { |line| "data: #{line.chomp}\n" }.join}\n" }
    end
  end
end

lambda do |env|
  channel = env["PATH_INFO"].delete_prefix("/events/")
  next [404, {}, ["not found\n"]] if channel.empty? || channel.include?("/")

  if env["REQUEST_METHOD"] == "POST"
    listeners = REDIS.publish("events:#{channel}", env["rack.input"] ? env["rack.input"].read : "")
    next [200, { "content-type" => "text/plain" }, ["#{listeners}\n"]]
  end

  [200, { "content-type" => "text/event-stream", "cache-control" => "no-store" }, Events.new("events:#{channel}")]
end
