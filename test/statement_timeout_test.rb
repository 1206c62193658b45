# frozen_string_literal: true

# `timeouts.statement`: queries of Active Record end with the time of their request, with Rails and a real PostgreSQL.

require "support/case"
require "support/postgresql"
require "support/rails_app"

class StatementTimeoutTest < Case
  parallel! slow: 60

  LIMIT = 3
  DATABASE = <<~YAML
    production:
      adapter: postgresql
      host: <%= ENV["DATABASE"] %>
      username: redmine
      database: statements
      pool: <%= ENV.fetch("POOL", "1") %>
  YAML
  CONTROLLER = <<~'RUBY'
    class StatementsController < ActionController::Base
      # The limits that PostgreSQL has got, by process id of the connection.
      SHOW = "select current_setting('statement_timeout') as now, pg_backend_pid() as pid"

      def show
        render plain: database.select_rows(SHOW).first.join(" ")
      end

      def long
        database.execute("select pg_sleep(30)")
        render plain: "it was not ended"
      rescue ActiveRecord::StatementInvalid => error
        render plain: "#{error.class} #{database.select_value('select pg_backend_pid()')}", status: 500
      end

      def late
        seconds = Float(params[:seconds])
        before = database.select_value("show statement_timeout")
        sleep seconds
        # Another text, because Rails would answer the same query from its cache.
        render plain: [before, database.select_value("show statement_timeout /* now */")].join(" ")
      end

      def more
        request.env["firebrick.timeout"].extend(60)
        render plain: database.select_value("show statement_timeout")
      end

      # The transaction of a savepoint that fails goes on.
      def transaction
        seen = []
        ActiveRecord::Base.transaction do
          seen << database.select_value("show statement_timeout")
          begin
            ActiveRecord::Base.transaction(requires_new: true) { database.execute("no such statement") }
          rescue ActiveRecord::StatementInvalid
            sleep 1
            seen << database.select_value("show statement_timeout")
          end
          raise ActiveRecord::Rollback
        end
        render plain: seen.join(" ")
      end

      # As a thread of the app, which serves no request.
      def elsewhere
        render plain: in_thread { |look| apart(&look) }
      end

      # Since Ruby 3.2 a thread that a request has started belongs to it.
      def beside
        render plain: in_thread(&:call)
      end

      # The SETs that the requests so far have cost.
      def sets
        render plain: COUNTED.size.to_s
      end

      private

      def database = ActiveRecord::Base.connection

      def in_thread
        database
        pool = ActiveRecord::Base.connection_pool
        pool.release_connection
        look = -> { pool.with_connection { |one| one.select_rows(SHOW).first.join(" ") } }
        Thread.new { yield look }.value
      end

      def apart(&block) = Fiber.respond_to?(:[]) ? Fiber.new(storage: {}, &block).resume : block.call
    end
  RUBY
  INITIALIZER = <<~'RUBY'
    COUNTED = []
    module CountedStatements
      def exec(sql, *) = super.tap { COUNTED << sql if sql.start_with?("SET statement_timeout", "SELECT set_config('statement_timeout'") }
    end
    require "pg"
    PG::Connection.prepend(CountedStatements)
  RUBY
  ROUTES = <<~'RUBY'
    Rails.application.routes.draw do
      %w[show long late more transaction elsewhere beside sets].each { |name| get name => "statements##{name}" }
    end
  RUBY

  def before_setup
    super
    firebrick_only
    rails_only
    skip "pg is not installed (apt-get install ruby-pg)" unless system(ENV.fetch("RUBY", "ruby"), "-rpg", "-e", "", err: File::NULL)
    skip "PostgreSQL is not installed (apt-get install postgresql)" unless Postgresql.programs
  end

  { "threads" => {}, "plain Ruby" => { env: { "FIREBRICK_PURE" => "1" } }, "fibers" => { fibers: 4 } }.each do |name, how|
    it "ends a query in time with #{name}, and gives the connection back as it was" do
      skip "Rails #{RailsApp.version} cannot serve with fibers; 7.1 can" if how[:fibers] && Gem::Version.new(RailsApp.version) < Gem::Version.new("7.1")
      with_rails(**how) do |own|
        response = nil
        took = elapsed { response = get("/long", to: own) }
        assert_match(/\AActiveRecord::QueryCanceled \d+\z/, response.body, -> { own.report })
        assert_operator took, :<, LIMIT
        pid = response.body[/\d+/]
        now, same = get("/show", to: own).body.split
        assert_equal pid, same, "the same connection"
        assert_includes (LIMIT * 800)..(LIMIT * 1000), milliseconds(now), "the limit of a new request"
        assert_equal ["0", pid], get("/elsewhere", to: own).body.split, "outside of requests there is none"
        now, = get("/beside", to: own).body.split
        inherits? ? assert_includes((LIMIT * 800)..(LIMIT * 1000), milliseconds(now)) : assert_equal("0", now)
        before, after = get("/late?seconds=1.5", to: own).body.split.map { |text| milliseconds(text) }
        assert_operator before, :>, LIMIT * 800
        assert_operator after, :<=, (LIMIT - 1.5) * 1000, "what is left, not the whole"
        assert_operator milliseconds(get("/more", to: own).body), :>, 48_000
      end
    end
  end

  # Rails serves with fibers from 7.1 on. This adapter is as that of Active Record 7.1, with connections of the real driver.
  FIBERS = <<~'RUBY'
    require "pg"

    module ActiveRecord
      module ConnectionAdapters
        class AbstractAdapter
          def in_use? = true
          def exec(sql) = with_raw_connection { |raw| raw.exec(sql) }

          private

          def with_raw_connection
            yield(@raw ||= PG.connect(host: ENV.fetch("DATABASE"), user: "redmine", dbname: "statements"))
          end
        end

        class PostgreSQLAdapter < AbstractAdapter; end
      end
    end

    POOL = Queue.new
    2.times { POOL << ActiveRecord::ConnectionAdapters::PostgreSQLAdapter.new }
    run lambda { |env|
      one = POOL.pop
      begin
        one.exec("select pg_sleep(30)") if env["PATH_INFO"] == "/long"
        [200, {}, [one.exec("show statement_timeout").getvalue(0, 0)]]
      rescue PG::QueryCanceled => error
        [500, {}, [error.class.name]]
      ensure
        POOL << one
      end
    }
  RUBY

  it "gives each fiber of a thread its own time" do
    with_database do |host|
      own = start(app: FIBERS, workers: 1, threads: "1:1", env: { "DATABASE" => host },
                  settings: { fibers: 4, timeouts: { worker: "#{LIMIT}s", statement: "session" } })
      took = elapsed do
        clients = Array.new(2) { connect(own).write(request("GET", "/long")) }
        responses = clients.map(&:read_response)
        assert_equal([[500, "PG::QueryCanceled"]] * 2, responses.map { |response| [response.status, response.body] })
      end
      assert_operator took, :<, LIMIT
      assert_operator milliseconds(get("/show", to: own).body), :>, LIMIT * 800
    end
  end

  it "costs nothing for requests that take little of their time" do
    with_rails do |own|
      10.times { assert_status 200, get("/show", to: own) }
      assert_equal "1", get("/sets", to: own).body
    end
  end

  it "is local to a transaction, which a failed statement does not end" do
    with_rails do |own|
      first, second = get("/transaction", to: own).body.split.map { |text| milliseconds(text) }
      assert_operator first, :>, LIMIT * 800
      assert_operator second, :<=, (LIMIT - 1) * 1000
      assert_operator milliseconds(get("/show", to: own).body.split.first), :>, LIMIT * 800
    end
  end

  it "leaves a shorter limit of the connection, and one without time, alone" do
    with_rails(database: "#{DATABASE}  variables:\n    statement_timeout: 700\n") do |own|
      assert_equal "700ms", get("/show", to: own).body.split.first
      assert_equal "0", get("/sets", to: own).body
      assert_match(/QueryCanceled/, get("/long", to: own).body)
    end
    with_rails(timeouts: { worker: 0 }) { |own| assert_equal "0", get("/show", to: own).body.split.first }
  end

  it "sets it inside of transactions only, if it is told so" do
    with_rails(timeouts: { statement: "transaction" }) do |own|
      assert_equal "0", get("/show", to: own).body.split.first
      first, second = get("/transaction", to: own).body.split.map { |text| milliseconds(text) }
      assert_operator first, :>, LIMIT * 800
      assert_operator second, :<=, (LIMIT - 1) * 1000
      assert_equal "0", get("/show", to: own).body.split.first
    end
  end

  it "is off unless it is asked for, and does nothing without Active Record" do
    with_rails(timeouts: { statement: "off" }) { |own| assert_equal "0", get("/show", to: own).body.split.first }
    own = start(app: "run ->(_) { [200, {}, [defined?(ActiveRecord).inspect]] }", settings: { timeouts: { statement: "session", worker: "3s" } })
    assert_equal "nil", get("/", to: own).body
    _, err, code = own.command_line("check", own.dir, "--statement-timeout", "always")
    assert_equal 1, code
    assert_match(/expected one of "off", "session", "transaction"/, err)
    _, err, code = own.command_line("set", "timeouts.statement=off", "--dir", own.dir)
    assert_equal 1, code
    assert_match(/it takes a reload, because only new workers apply it/, err)
  end

  private

  # Whether the app's Ruby passes the storage of fibers on to threads.
  def inherits? = system(ENV.fetch("RUBY", "ruby"), "-e", "exit Fiber.respond_to?(:[])")

  # Reads a time of PostgreSQL: 700ms, 54s, 1min.
  def milliseconds(text)
    number, unit = text.match(/\A(\d+)(ms|s|min)?\z/)&.captures
    flunk "no time: #{text}" unless number
    Integer(number) * { "ms" => 1, "s" => 1000, "min" => 60_000 }.fetch(unit, 0)
  end

  def with_rails(database: DATABASE, timeouts: {}, fibers: nil, env: {})
    with_database do |host|
      settings = { timeouts: { worker: "#{LIMIT}s", statement: "session" }.merge(timeouts), fibers: fibers }.compact
      own = start(**options(database, settings, { "DATABASE" => host }.merge(env)))
      yield own
    ensure
      own&.finish
    end
  end

  def with_database
    postgresql = Postgresql.new
    begin
      postgresql.start.create("statements")
      yield postgresql.dir
    ensure
      postgresql.finish
    end
  end

  def options(database, settings, env)
    files = { "config/database.yml" => database, "config/routes.rb" => ROUTES, "app/controllers/statements_controller.rb" => CONTROLLER,
              "config/initializers/counted.rb" => INITIALIZER, "Gemfile" => %w[rails pg].map { |name| "gem #{name.inspect}\n" }.join }
    without = %w[config/initializers/tables.rb config/initializers/settings.rb]
    isolated = "class Application < Rails::Application\n    config.active_support.isolation_level = :fiber\n"
    files["config/application.rb"] = RailsApp.files["config/application.rb"].sub("class Application < Rails::Application\n", isolated) if settings.key?(:fibers)
    options = RailsApp.options("pg", files: files, env: { "RAILS_LOG_LEVEL" => "warn" }.merge(env), workers: 1, threads: "1:1", environment: "production", settings: settings)
    files = options[:files].reject { |name,| without.include?(name) }
    # Without Sprockets, and with requests over plain HTTP.
    options.merge(files: files.transform_values { |text| text.gsub(/^.*config\.(assets|force_ssl|assume_ssl).*\n/, "") })
  end
end

# MySQL and MariaDB, whose drivers need not be installed: an adapter as that of Active Record 7.1, and a connection that keeps its statements.
class StatementTimeoutMysqlTest < Case
  parallel!

  APP = <<~'RUBY'
    module Mysql2
      class Error < StandardError; end

      class Client
        attr_reader :told

        def initialize
          @value = ENV.fetch("OWN")
          @told = []
        end

        def query(sql)
          @told << sql
          raise Error, "Unknown system variable" if @value == "unknown" && sql.include?("max_")
          @value = Regexp.last_match(1) if sql =~ /\ASET .* = ([\d.]+)\z/
          [[@value]]
        end
      end
    end

    module ActiveRecord
      module ConnectionAdapters
        class AbstractAdapter
          attr_reader :raw

          def in_use? = true
          def execute(sql) = with_raw_connection(allow_retry: true) { |raw| raw.query(sql) }

          private

          def with_raw_connection(allow_retry: false, materialize_transactions: true)
            raise "not the arguments" unless allow_retry && materialize_transactions

            yield(@raw ||= Mysql2::Client.new)
          end
        end

        class Mysql2Adapter < AbstractAdapter
          def mariadb? = ENV.key?("MARIADB")
        end
      end
    end

    DATABASE = ActiveRecord::ConnectionAdapters::Mysql2Adapter.new
    run lambda { |env|
      other = -> { DATABASE.execute("SELECT 2") }
      env["PATH_INFO"] == "/thread" ? Thread.new { Fiber.respond_to?(:[]) ? Fiber.new(storage: {}, &other).resume : other.call }.join : DATABASE.execute("SELECT 1")
      [200, {}, [DATABASE.raw.told.slice!(0..).join("\n")]]
    }
  RUBY

  def setup
    firebrick_only
  end

  def told(own, path = "/") = get(path, to: own).body.lines(chomp: true)

  def with_mysql(own: "0", statement: "session", fibers: nil, **env)
    settings = { timeouts: { worker: "20s", statement: statement }, fibers: fibers }.compact
    start(app: APP, workers: 1, threads: "1:1", settings: settings, env: { "OWN" => own }.merge(env))
  end

  { "threads" => {}, "fibers" => { fibers: 4 }, "plain Ruby" => { "FIREBRICK_PURE" => "1" } }.each do |name, how|
    it "sets max_execution_time, and takes it back, with #{name}" do
      own = with_mysql(**how)
      read, set, statement, *rest = told(own)
      assert_equal ["SELECT @@SESSION.max_execution_time", "SELECT 1", []], [read, statement, rest]
      assert_includes 17_900..18_000, set[/\ASET SESSION max_execution_time = (\d+)\z/, 1].to_i
      assert_equal ["SELECT 1"], told(own), "nothing for the next one"
      assert_equal ["SET SESSION max_execution_time = 0", "SELECT 2"], told(own, "/thread")
    end
  end

  it "sets max_statement_time of MariaDB in seconds, and leaves a shorter one" do
    own = with_mysql("MARIADB" => "1")
    assert_includes 17.9..18.0, told(own)[1][/\ASET SESSION max_statement_time = ([\d.]+)\z/, 1].to_f
    short = with_mysql(own: "2.5", "MARIADB" => "1")
    assert_equal ["SELECT @@SESSION.max_statement_time", "SELECT 1"], told(short)
  end

  it "says once that a version has no such variable, and sets nothing for transactions only" do
    old = with_mysql(own: "unknown")
    assert_equal ["SELECT @@SESSION.max_execution_time", "SELECT 1"], told(old)
    assert_equal ["SELECT 1"], told(old)
    assert_equal 1, old.stderr.scan("timeouts.statement: a query cannot be limited: Unknown system variable").size
    assert_equal ["SELECT 1"], told(with_mysql(statement: "transaction"))
  end
end
