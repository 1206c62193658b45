# frozen_string_literal: true

# A JSON API over Redis inside the server: while Redis is asked, the thread serves others.
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
