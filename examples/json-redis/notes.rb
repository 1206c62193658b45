# frozen_string_literal: true

# A JSON API over Redis: short notes that can be written, read, listed and deleted.
#
#   POST   /notes       {"text": "..."}   201, the note
#   GET    /notes                         200, the newest first
#   GET    /notes/:id                     200 or 404
#   DELETE /notes/:id                     204 or 404

require "json"
require "redis"

# The app: routes requests and stores the notes in Redis.
class Notes
  MAX_BODY = 64 * 1024
  LISTED = 50

  # Each thread opens its own connection on first use: workers are forked from a process that has loaded the app, and a
  # connection opened there would be shared by all of them.
  def initialize(url)
    @url = url
    @key = :"notes_redis_#{object_id}"
  end

  def call(env)
    route(env)
  rescue Redis::BaseConnectionError
    error(503, "the database is unreachable")
  end

  private

  def route(env)
    id = env["PATH_INFO"][%r{\A/notes/(\d{1,18})\z}, 1]
    case [env["REQUEST_METHOD"], id ? :note : env["PATH_INFO"]]
    in ["GET", "/notes"] then json(200, list)
    in ["POST", "/notes"] then create(env)
    in ["GET", :note] then (note = read(id)) ? json(200, note) : missing
    in ["DELETE", :note] then delete(id) ? [204, {}, []] : missing
    in [_, "/notes" | :note] then error(405, "method not allowed")
    else missing
    end
  end

  def redis
    Thread.current.thread_variable_get(@key) ||
      Redis.new(url: @url, timeout: 2).tap { |connection| Thread.current.thread_variable_set(@key, connection) }
  end

  def create(env)
    body = env["rack.input"]&.read(MAX_BODY + 1).to_s
    return error(413, "a note has at most #{MAX_BODY} bytes") if body.bytesize > MAX_BODY

    text = text_in(body) or return error(422, 'expected a JSON object such as {"text": "hello"}')
    note = { "id" => redis.incr("notes:last"), "text" => text, "at" => Time.now.utc.strftime("%FT%TZ") }
    write(note)
    json(201, note, "location" => "/notes/#{note['id']}")
  end

  def write(note)
    redis.multi do |transaction|
      transaction.set("notes:#{note['id']}", JSON.generate(note))
      transaction.lpush("notes:ids", note["id"])
    end
  end

  def text_in(body)
    given = JSON.parse(body)
    text = given["text"] if given.is_a?(Hash)
    text if text.is_a?(String) && !text.strip.empty?
  rescue JSON::ParserError, EncodingError
    nil
  end

  def list
    ids = redis.lrange("notes:ids", 0, LISTED - 1)
    ids.empty? ? [] : redis.mget(ids.map { |id| "notes:#{id}" }).compact.map { |note| JSON.parse(note) }
  end

  def read(id)
    redis.get("notes:#{id}")&.then { |note| JSON.parse(note) }
  end

  def delete(id)
    redis.lrem("notes:ids", 1, id)
    redis.del("notes:#{id}").positive?
  end

  def missing = error(404, "there is no such note")

  def error(status, message) = json(status, { "error" => message })

  def json(status, data, headers = {})
    [status, { "content-type" => "application/json" }.merge(headers), [JSON.generate(data), "\n"]]
  end
end
