# frozen_string_literal: true

# GET /events/NAME listens to a channel, POST /events/NAME publishes the body to it.

REDIS = Redis.new(url: ENV.fetch("REDIS_URL", "redis://127.0.0.1:6379/0"))

# A response that goes on: what is yielded is sent at once. When the browser has gone, the subscription ends with it.
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
    heard = REDIS.publish("events:#{channel}", env["rack.input"] ? env["rack.input"].read : "")
    next [200, { "content-type" => "text/plain" }, ["#{heard}\n"]]
  end

  [200, { "content-type" => "text/event-stream", "cache-control" => "no-store" }, Events.new("events:#{channel}")]
end
