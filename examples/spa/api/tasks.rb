# frozen_string_literal: true

# The API of the single-page app: tasks as JSON, in the memory of one worker.
#
#   GET   /tasks                        200, all
#   POST  /tasks      {"title": "..."}  201, the new one
#   GET   /tasks/:id                    200 or 404
#   PATCH /tasks/:id  {"done": true}    200 or 404

require "json"

# The app: routes requests and keeps the tasks.
class Tasks
  MAX_BODY = 16 * 1024
  MAX_TITLE = 120
  KEPT = 200

  FIRST = [
    ["Order lime and sand", "Three parts of washed sand to one of lime putty.", true],
    ["Mark out the footings", "String lines first; the corners by three, four and five.", true],
    ["Lay the first course", "On a full bed, dead level. Everything above repeats what is wrong here.", false],
    ["Raise the corners", "Five courses, racked back, checked with the gauge rod.", false],
    ["Point the joints", "When the mortar takes a thumb print and keeps the thumb clean.", false]
  ].freeze

  def initialize
    @lock = Mutex.new
    @tasks = FIRST.map.with_index(1) do |(title, note, done), id|
      { "id" => id, "title" => title, "note" => note, "done" => done }
    end
    @last = FIRST.size
  end

  def call(env)
    method, path = env.values_at("REQUEST_METHOD", "PATH_INFO")
    return all(method, env) if path == "/tasks"

    id = path[%r{\A/tasks/(\d{1,9})\z}, 1]
    id ? one(method, id.to_i, env) : missing
  end

  private

  def all(method, env)
    case method
    when "GET", "HEAD" then json(200, @lock.synchronize { @tasks })
    when "POST" then create(sent(env))
    else error(405, "method not allowed", "allow" => "GET, HEAD, POST")
    end
  end

  def one(method, id, env)
    case method
    when "GET", "HEAD" then json_or_missing(find(id))
    when "PATCH" then json_or_missing(change(id, sent(env)))
    else error(405, "method not allowed", "allow" => "GET, HEAD, PATCH")
    end
  end

  def find(id) = @lock.synchronize { @tasks.find { |task| task["id"] == id } }

  def create(wanted)
    title = wanted["title"]
    return error(422, "a task needs a title") unless title.is_a?(String) && !title.strip.empty?
    return error(422, "a title has at most #{MAX_TITLE} characters") if title.size > MAX_TITLE

    task = { "title" => title.strip, "note" => "", "done" => false }
    @lock.synchronize do
      task = { "id" => @last += 1, **task }
      @tasks = [*@tasks, task].last(KEPT)
    end
    json(201, task)
  end

  # The list and its tasks are replaced, never mutated: another thread may be serializing them.
  def change(id, wanted)
    done = wanted["done"] == true
    @lock.synchronize do
      @tasks = @tasks.map { |task| task["id"] == id ? task.merge("done" => done) : task }
      @tasks.find { |task| task["id"] == id }
    end
  end

  # The JSON object in a request's body; empty if there is none.
  def sent(env)
    given = JSON.parse(env["rack.input"]&.read(MAX_BODY).to_s)
    given.is_a?(Hash) ? given : {}
  rescue JSON::ParserError, EncodingError
    {}
  end

  def json_or_missing(task) = task ? json(200, task) : missing

  def missing = error(404, "there is no such task")

  def error(status, message, headers = {}) = json(status, { "error" => message }, headers)

  def json(status, data, headers = {})
    [status, { "content-type" => "application/json" }.merge(headers), [JSON.generate(data), "\n"]]
  end
end
