# frozen_string_literal: true

# The app of config.ru as a handler on mruby. {redis} and {rounds} are filled in.
class Choose
  TEXT = { "content-type" => "text/plain" }.freeze
  JSON_TYPE = { "content-type" => "application/json" }.freeze

  def initialize
    @redis = Redis.new(host: "127.0.0.1", port: "{redis}".to_i)
  end

  def call(env)
    case env["PATH_INFO"]
    when "/wait"
      sleep 0.02
      [200, TEXT.dup, ["slept"]]
    when "/cpu"
      sum = 0
      "{rounds}".to_i.times { |number| sum += number }
      [200, TEXT.dup, [sum.to_s]]
    when "/redis"
      [200, JSON_TYPE.dup, [JSON.generate({ greeting: @redis["greeting"] })]]
    else
      [200, TEXT.dup, ["Hello, World!"]]
    end
  end
end

Choose.new
