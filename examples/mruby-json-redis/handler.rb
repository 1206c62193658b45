# frozen_string_literal: true

# A JSON API over Redis inside the server: while it waits for Redis, the thread serves other requests.
class JsonApi
  def initialize
    @storage = Redis.new
    @storage["foo"] = "bar"
  end

  def call(_env)
    body = JSON.generate({ foo: @storage["foo"] })
    [200, { "Content-Type" => "application/json", "Content-Length" => body.size }, [body]]
  end
end

JsonApi.new
