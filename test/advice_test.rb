# frozen_string_literal: true

# Advice from the figures of the routes: `firebrick routes`, GET /routes?advice. Each fault is planted in the same app.

require "json"
require "support/case"
require "support/visits"

# Requires Active Record and SQLite (apt-get install ruby-activerecord ruby-sqlite3).
class AdviceTest < Case
  parallel!

  include Visits

  CONFIG = <<~'RUBY'
    require "active_record"
    require "digest"

    pool = Integer(ENV.fetch("POOL", "16"))
    ActiveRecord::Base.establish_connection(adapter: "sqlite3", database: "data.sqlite3", pool: pool, timeout: 20_000)
    unless ActiveRecord::Base.connection.table_exists?(:authors)
      ActiveRecord::Schema.verbose = false
      ActiveRecord::Schema.define do
        create_table(:authors) { |t| t.string :name }
        create_table(:posts) { |t| t.integer :author_id }
      end
    end
    require_relative "app/pages"
    30.times { |n| Post.create!(author: Author.create!(name: "author #{n}")) } if Post.none?
    ActiveRecord::Base.connection_handler.clear_all_connections!

    run(lambda do |env|
      env["firebrick.route"] = "pages##{env["PATH_INFO"].delete("/")}"
      [200, {}, [Pages.public_send(env["PATH_INFO"].delete("/")).to_s]]
    ensure
      ActiveRecord::Base.connection_handler.clear_active_connections!
    end)
  RUBY

  PAGES = <<~'RUBY'
    class Author < ActiveRecord::Base; end
    class Post < ActiveRecord::Base
      belongs_to :author
    end

    module Pages
      BIG = "x" * 30_000_000
      KEPT = []

      class << self
        def index
          Post.limit(30).map { |post| post.author.name } # line of the N+1
        end

        def good = Post.includes(:author).limit(30).map { |post| post.author.name }
        def quick = "quick"
        def short = sleep(0.002)
        def report = sleep(0.1)

        def export
          Digest::SHA256.digest(BIG) # line of the hash
          "done"
        end

        def garbage
          KEPT.push(*Array.new(20_000) { +"kept" * 20 })
          KEPT.shift(20_000) if KEPT.length > 200_000
          GC.start(full_mark: false)
        end
      end
    end
  RUBY

  FILES = { "app/pages.rb" => PAGES }.freeze

  def before_setup
    super
    firebrick_only
    skip "Active Record is not installed" unless system(ENV.fetch("RUBY", "ruby"), "-e", "gem 'activerecord'; gem 'sqlite3'", out: File::NULL, err: File::NULL)
  end

  def launch(pool: 16, **options)
    start(app: CONFIG, files: FILES, env: { "POOL" => pool.to_s }, leaves: ["data.sqlite3"], workers: 1, threads: "3:3", **options)
  end

  # Makes so many requests of each page from as many clients as the server has threads.
  def visit(own, **pages)
    visit_all(own, pages.flat_map { |page, count| ["/#{page}"] * count }.shuffle(random: Random.new(1)), clients: 4)
    wait_until("all requests") { own.control("/routes")["routes"].sum { |one| one["requests"] } >= pages.values.sum }
  end

  def advice(own) = own.control("/routes?advice").fetch("advice")

  def line(words) = PAGES.lines.index { |text| text.include?(words) } + 1

  # The fault must be the first in the table, in JSON, and the words in its sentence.
  def assert_first(own, rule, *words)
    found = advice(own)
    assert_equal rule, found.first&.fetch("rule"), "#{found}\n#{own.control('/routes')['routes'].map(&:compact)}"
    text = found.first.fetch("text")
    words.each { |word| assert_match word, text }
    table, _, code = own.command_line("routes", own.dir)
    assert_equal 0, code
    after = table.lines(chomp: true).drop_while { |row| !row.start_with?("Advice") }
    assert(after.all? { |row| row.length <= 100 }, table)
    assert_includes after.drop(1).join(" ").squeeze(" "), text[0, 60]
    json = JSON.parse(own.command_line("routes", own.dir, "--json").first).fetch("advice")
    assert_equal rule, json.dig(0, "rule")
    found
  end

  it "names the line of a query that is made for each row" do
    own = launch
    visit(own, index: 60, good: 100, quick: 100)
    assert_first(own, "repeated_query", /\Apages#index makes 31 queries a request, 30 of them the same one/,
                 %r{at app/pages.rb:#{line('line of the N')}: SELECT "authors"}, /\d %/)
    index = own.control("/routes")["routes"].find { |one| one["route"] == "pages#index" }
    assert_equal [60, 60 * 30], index.values_at("repeating", "repeats")
    saved = JSON.parse(own.command_line("plan", "--live", "--from", own.dir, "--rate", "9/s", "--instance-cost", "$40/month", "--json").first)
    saving = saved["bill"]["savings"].find { |one| one["text"].start_with?("pages#index makes 31") }
    assert_in_delta saved["bill"]["per_month"] * saving["share"], saving["per_month"], 0.01
    good = own.control("/routes")["routes"].find { |one| one["route"] == "pages#good" }
    assert_equal [0, nil], good.values_at("repeating", "repeats_at")
  end

  it "names a pool of connections that is smaller than the number of threads" do
    own = launch(pool: 2)
    visit(own, good: 80, quick: 40)
    assert_first(own, "connections", /3 threads of a worker share 2 connections/, /set pool to 3/)
  end

  it "names a function in C that keeps Ruby's lock, and its line" do
    skip "needs timers of a thread's processor time" unless RUBY_PLATFORM.include?("linux")
    own = launch
    visit(own, export: 55, quick: 200)
    found = assert_first(own, "gvl", /\Apages#export keeps Ruby's lock \(GVL\) for up to \d+ ms/, %r{at app/pages.rb:#{line('line of the hash')}: Digest::})
    assert_equal(1, found.count { |one| one["rule"] == "gvl" })
  end

  it "names the route that makes the garbage" do
    own = launch
    visit(own, garbage: 60, good: 60)
    assert_first(own, "garbage", /Garbage collection takes \d+ % of the processor time .* mostly for pages#garbage/)
  end

  it "names a route that wants a pool of its own" do
    own = launch(threads: "1:1")
    visit(own, report: 60, quick: 150)
    assert_first(own, "pool", /\Apages#report takes 1\d\d ms, other requests take .* and wait [\d.]+ ms/, /\[pools\]/)
  end

  it "tells what a cache would save" do
    app = <<~'RUBY'
      run(lambda do |env|
        sleep 0.002
        kept = env["PATH_INFO"] == "/kept" ? "public, max-age=600" : "private, max-age=600"
        [200, { "cache-control" => kept }, ["page"]]
      end)
    RUBY
    own = start(app: app, workers: 1, threads: "3:3")
    visit(own, kept: 500, private: 500)
    found = assert_first(own, "cache", %r{\AAt least \d+ % of the requests of GET /kept get a response}, /\[cache\] memory/)
    assert_equal 1, found.length
    assert_in_delta 0.4, found.first["frees"], 0.15
    cached = start(app: app, workers: 1, threads: "3:3", settings: { cache: { memory: "16MiB" } })
    visit(cached, kept: 200, private: 500)
    assert_empty advice(cached)
  end

  it "gives no advice to an app without faults, or to one that few have asked" do
    own = launch
    visit(own, good: 150, quick: 200, short: 100)
    assert_empty advice(own)
    refute_match(/^Advice/, own.command_line("routes", own.dir).first)
    own = launch(pool: 1)
    visit(own, index: 20, export: 5)
    assert_empty advice(own)
  end

  SEQUEL = <<~'RUBY'
    require "sequel"
    Sequel.extension(:fiber_concurrency) if ENV["FIBERS"]
    DB = Sequel.sqlite("data.sqlite3", max_connections: 8)

    run(lambda do |env|
      15.times { |n| DB.fetch("select 1 where 2 = #{n} and 'a' <> 'b#{n}'").all } # line of the query
      [200, {}, ["ok"]]
    end)
  RUBY

  it "finds repeated queries of Sequel, on threads and fibers; the plain-Ruby worker knows none" do
    skip "Sequel is not installed" unless system(ENV.fetch("RUBY", "ruby"), "-e", "gem 'sequel'", out: File::NULL, err: File::NULL)
    fibers = { settings: { fibers: 20 }, env: { "FIBERS" => "1" } }
    { "threads" => {}, "fibers" => fibers, "plain Ruby" => { env: { "FIREBRICK_PURE" => "1" } } }.each do |name, options|
      own = start(app: SEQUEL, workers: 1, threads: "2:2", leaves: ["data.sqlite3"], **options)
      60.times { |n| assert_status 200, get("/rows/#{n}", to: own) }
      wait_until("all requests") { own.control("/routes")["routes"].sum { |one| one["requests"] } >= 60 }
      next assert_empty(advice(own)) if name == "plain Ruby"

      number = SEQUEL.lines.index { |text| text.include?("line of the query") } + 1
      assert_match(%r{\AGET /rows/:id makes 15 queries a request, 15 .* at config.ru:#{number}: select \? where \? = \? and \? <> \?}, advice(own).dig(0, "text"), name)
    end
  end
end
