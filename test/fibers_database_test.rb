# frozen_string_literal: true

# Many more requests than a pool has connections, on the fibers of one thread, with a real PostgreSQL.

require "support/case"
require "support/postgresql"

# Quiet, because it compares the total time that requests wait for the database with the time that they take.
class FibersDatabaseTest < Case
  quiet!

  # TEST_QUERIES: the number of requests.
  COUNT = Integer(ENV.fetch("TEST_QUERIES", "200"))
  QUERIES = 3
  SECONDS = 0.05
  POOL = 20
  QUERY = "select pg_sleep(#{SECONDS}), pg_backend_pid() as pid".freeze
  DATABASE = 'database = { host: ENV.fetch("DATABASE"), user: "redmine", dbname: "fibers" }'

  POOLS = {
    "Sequel" => ["sequel pg", <<~RUBY],
      Sequel.extension :fiber_concurrency
      DB = Sequel.connect(adapter: "postgres", host: database[:host], user: database[:user], database: database[:dbname], max_connections: #{POOL}, pool_timeout: 60)
      Firebrick.before_fork { DB.disconnect }
      query = -> { DB["#{QUERY}"].first[:pid] }
    RUBY
    "connection_pool" => ["connection_pool pg", <<~RUBY],
      pool = ConnectionPool.new(size: #{POOL}, timeout: 60) { PG.connect(**database) }
      query = -> { pool.with { |pg| pg.exec("#{QUERY}")[0]["pid"] } }
    RUBY
    "a queue" => ["pg", <<~RUBY]
      pool = Queue.new
      Firebrick.after_fork { #{POOL}.times { pool << PG.connect(**database) } }
      query = -> { pg = pool.pop; begin; pg.exec("#{QUERY}")[0]["pid"]; ensure; pool << pg; end }
    RUBY
  }.freeze

  def before_setup
    super
    firebrick_only
    skip "PostgreSQL is not installed (apt-get install postgresql)" unless Postgresql.programs
  end

  POOLS.each do |name, (libraries, code)|
    it "waits for the connections of #{name} together" do
      libraries.split.each { |library| skip "#{library} is not installed" unless system(ENV.fetch("RUBY", "ruby"), "-r#{library}", "-e", "", err: File::NULL) }
      with_database do |host|
        own = start(app: "#{libraries.split.map { |library| "require '#{library}'\n" }.join}#{DATABASE}\n#{code}run ->(_) { [200, {}, [Array.new(#{QUERIES}) { query.call }.join(' ')]] }",
                    threads: "1:1", settings: { fibers: COUNT, timeouts: { worker: "120s" } }, env: { "DATABASE" => host })
        responses = []
        took = elapsed do
          clients = Array.new(COUNT) { connect(own, deadline: 120).write(request("GET", "/")) }
          responses = clients.map(&:read_response)
        end
        assert_equal [200], responses.map(&:status).uniq, -> { own.report }
        used = responses.flat_map { |response| response.body.split }
        assert_equal [COUNT * QUERIES, POOL], [used.size, used.uniq.size], "queries, and connections that they have used"
        least = COUNT * QUERIES * SECONDS / POOL
        puts format("%s: %d requests in %.2f s; %.2f s is the least", name, COUNT, took, least) if ENV.key?("TEST_QUERIES")
        assert_operator took, :<, least * POOL / 2, "they do not wait one after another"
      end
    end
  end

  private

  def with_database
    postgresql = Postgresql.new
    begin
      postgresql.start.create("fibers")
      yield postgresql.dir
    ensure
      postgresql.finish
    end
  end
end
