# frozen_string_literal: true

# Many more requests than Rails' pool has connections, on the fibers of one thread, with a real PostgreSQL; and the settings that Rails needs.

require "support/case"
require "support/postgresql"
require "support/rails_app"

# Quiet, because it compares the total time that requests wait for the database with the time that they take.
class FibersRailsTest < Case
  quiet!

  # TEST_QUERIES: the number of requests.
  COUNT = Integer(ENV.fetch("TEST_QUERIES", "200"))
  QUERIES = 3
  SECONDS = 0.05
  POOL = 20
  LEAST = COUNT * QUERIES * SECONDS / POOL
  ISOLATION = "config.active_support.isolation_level = :fiber"
  DATABASE = <<~YAML
    production:
      adapter: postgresql
      host: <%%= ENV["DATABASE"] %%>
      username: redmine
      database: fibers
      pool: %<pool>d
      checkout_timeout: %<timeout>s
  YAML
  # Each query takes a connection and returns it, or the first query takes a connection for the whole request. No two queries of a request are
  # the same, because Rails would answer the second from its cache.
  CONTROLLER = <<~RUBY.freeze
    class WaitsController < ActionController::Base
      QUERY = "select pg_sleep(#{SECONDS}), pg_backend_pid() as pid"

      def blocks
        pids = Array.new(#{QUERIES}) { |n| ActiveRecord::Base.with_connection { |database| database.select_one("\#{QUERY}, \#{n}")["pid"] } }
        render plain: pids.join(" ")
      end

      def request_long
        pids = Array.new(#{QUERIES}) { |n| ActiveRecord::Base.connection.select_one("\#{QUERY}, \#{n}")["pid"] }
        render plain: pids.join(" ")
      rescue ActiveRecord::ConnectionTimeoutError => error
        render plain: error.message, status: 503
      end
    end
  RUBY
  ROUTES = <<~RUBY
    Rails.application.routes.draw do
      get "up" => "rails/health#show"
      get "blocks" => "waits#blocks"
      get "request" => "waits#request_long"
    end
  RUBY

  def before_setup
    super
    firebrick_only
    skip "the flag of TEST_FIBERS overrides the setting" if ENV["TEST_FIBERS"]
    rails_only
    skip "Rails #{RailsApp.version} cannot serve with fibers; 7.1 can" if Gem::Version.new(RailsApp.version) < Gem::Version.new("7.1")
    skip "pg is not installed (apt-get install ruby-pg)" unless system(ENV.fetch("RUBY", "ruby"), "-rpg", "-e", "", err: File::NULL)
    skip "PostgreSQL is not installed (apt-get install postgresql)" unless Postgresql.programs
  end

  it "waits for the connections that with_connection gives back" do
    skip "Rails #{RailsApp.version} keeps the connection to the end of the request; 7.2 gives it back" if Gem::Version.new(RailsApp.version) < Gem::Version.new("7.2")
    assert_waits_together("/blocks")
  end

  it "waits for the connections that requests hold to their end" do
    assert_waits_together("/request")
  end

  it "refuses requests that wait for a connection for longer than the pool allows, and goes on" do
    with_rails(pool: 2, timeout: 0.2) do |own|
      responses = ask_all(own, "/request", 20)
      assert_equal [200, 503], responses.map(&:status).uniq.sort, -> { own.report }
      refused = responses.select { |response| response.status == 503 }
      refused.each { |response| assert_match(/could not obtain a connection from the pool within 0\.2\d* seconds/, response.body) }
      assert_equal [200, 200], ask_all(own, "/request", 2).map(&:status), "the pool is as it was"
    end
  end

  it "says at the start that the pool is smaller than the number of fibers, and what to set" do
    with_rails(pool: POOL) do |own|
      assert_match(/^\* Active Record's pool has #{POOL} connections for #{COUNT} fibers: .*raise after 60\.0 s \(pool and checkout_timeout in/, own.stdout)
    end
  end

  it "does not start without the isolation level of fibers, and names the line to add" do
    own = Server.new(**options(isolation: "", pool: POOL))
    own.launch
    refute_equal 0, own.wait_exit(within: 60)
    assert_match(%r{Add to config/application\.rb: #{Regexp.escape(ISOLATION)}}, own.stderr)
  ensure
    own&.finish
  end

  private

  def assert_waits_together(path)
    with_rails(pool: POOL) do |own|
      responses = []
      took = elapsed { responses = ask_all(own, path, COUNT) }
      assert_equal [200], responses.map(&:status).uniq, -> { own.report }
      used = responses.flat_map { |response| response.body.split }
      assert_equal [COUNT * QUERIES, POOL], [used.size, used.uniq.size], "queries, and connections that they have used"
      puts format("Rails %s, %s: %d requests in %.2f s; %.2f s is the least", RailsApp.version, path, COUNT, took, LEAST) if ENV.key?("TEST_QUERIES")
      assert_operator took, :<, LEAST * POOL / 2, "they do not wait one after another"
    end
  end

  def ask_all(own, path, count)
    clients = Array.new(count) { connect(own, deadline: 120).write(request("GET", path)) }
    clients.map(&:read_response)
  end

  def with_rails(**database)
    postgresql = Postgresql.new
    begin
      postgresql.start.create("fibers")
      own = start(**options(host: postgresql.dir, **database))
      get("/up", to: own)
      yield own
    ensure
      own&.finish
      postgresql.finish
    end
  end

  def options(pool:, timeout: 60, host: "/nonexistent", isolation: ISOLATION)
    generated = RailsApp.files("pg")
    files = { "config/database.yml" => format(DATABASE, pool: pool, timeout: timeout), "config/routes.rb" => ROUTES, "app/controllers/waits_controller.rb" => CONTROLLER,
              "config/application.rb" => generated["config/application.rb"].sub("class Application < Rails::Application\n") { |line| "#{line}    #{isolation}\n" } }
    files["Gemfile"] = %w[rails pg].map { |name| "gem #{name.inspect}\n" }.join
    without = %w[config/initializers/tables.rb config/initializers/settings.rb]
    options = RailsApp.options("pg", files: files, env: { "DATABASE" => host, "RAILS_LOG_LEVEL" => "warn" }, threads: "1:1",
                                     settings: { fibers: COUNT, timeouts: { worker: "120s" } })
    files = options[:files].reject { |name,| without.include?(name) }
    # Without Sprockets, and with requests over plain HTTP.
    options.merge(files: files.transform_values { |text| text.gsub(/^.*config\.(assets|force_ssl|assume_ssl).*\n/, "") })
  end
end
