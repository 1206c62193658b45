# frozen_string_literal: true

require "sequel"
require "json"

Sequel.extension :fiber_concurrency if ENV.key?("TEST_FIBERS")
# One connection: a thread that waits for SQLite's lock keeps the GVL, so it must never wait for a thread of its own process.
DB = Sequel.connect("sqlite://test.sqlite3", max_connections: 1, pool_timeout: 60, timeout: 20_000)
DB.create_table(:entries) do
  primary_key :id
  String :text
  Integer :process
end
Entry = Class.new(Sequel::Model(:entries))
# The connection that made the table must not reach the workers.
Firebrick.before_fork { DB.disconnect } if defined?(Firebrick) && !ENV["NO_HOOK"]
forked_with = []
Firebrick.after_fork { forked_with << DB.pool.size } if defined?(Firebrick)

run(lambda do |env|
  text = { "content-type" => "application/json" }
  case env["PATH_INFO"]
  when "/add"
    DB.transaction { Entry.create(text: env["QUERY_STRING"], process: Process.pid) }
    [201, text, ["{}"]]
  when "/rolled_back"
    DB.transaction { Entry.create(text: "never") && raise(Sequel::Rollback) }
    [200, text, ["{}"]]
  # No query: later versions of the gem sqlite3 close connections in a forked process.
  when "/forked_with" then [200, text, [JSON.generate(forked_with)]]
  else
    [200, text, [JSON.generate(texts: Entry.select_map(:text), processes: Entry.distinct.select_map(:process), forked_with: forked_with, now: DB.pool.size)]]
  end
end)
