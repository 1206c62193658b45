# frozen_string_literal: true

# The figures of each route of an app: `firebrick routes`, GET /routes, /stats, /metrics, the access log. The names come from the app's framework.

require "json"
require "support/case"
require "support/rails_app"
require "support/upgrading"

ROUTES_APP = <<~'RUBY'
  def burn(seconds)
    over = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) + seconds
    nil until Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) >= over
  end

  text = { "content-type" => "text/plain" }
  run lambda { |env|
    case env["PATH_INFO"]
    when "/hog" then burn 0.03
    when "/waits" then sleep 0.03
    when "/objects" then 20_000.times { Object.new }
    when "/pid" then next [200, text, [Process.pid.to_s]]
    when "/raise" then raise "an error of the app"
    when "/die" then Process.kill(:KILL, Process.pid); sleep
    when %r{\A/named/} then env["firebrick.route"] = "shop: \u00e9\n#{env["QUERY_STRING"]}"
    when %r{\A/unknown} then next [404, text, ["none"]]
    when "/kept" then next [200, text.merge("cache-control" => "public, max-age=60"), ["kept"]]
    end
    [200, text, ["ok"]]
  }
RUBY

# Routes as they are after the requests of a test.
module Routes
  def routes(own = server, query = "") = own.control("/routes#{query}").fetch("routes")

  # The figures of a route, once it has so many requests.
  def route(name, count, own = server)
    found = nil
    wait_until("#{count} requests of #{name} in #{routes(own).map { |one| one.values_at('route', 'requests') }}") do
      found = routes(own).find { |one| one["route"] == name }
      found && found["requests"] >= count
    end
    assert_equal count, found["requests"], name
    found
  end

  # The parts of the time are the time.
  def assert_adds_up(route)
    total = route.dig("total_ms", "sum")
    app = route["app_sum_ms"]
    in_app = route.values_at("cpu_ms", "gvl_ms", "waiting_ms").sum(&:to_f)
    assert_in_delta app, in_app, 0.02 * app, "the parts of the time in the app: #{route}"
    all = app + route.dig("queue_ms", "sum") + route["sending_ms"] + route["front_ms"]
    assert_in_delta total, all, 0.02 * total, "the parts of the time: #{route}"
  end
end

class RoutesTest < Case
  parallel!

  include Routes

  def before_setup
    super
    firebrick_only
  end

  def launch(**options) = start(app: ROUTES_APP, **options)

  it "tells what the routes of an app without a framework take" do
    own = launch(threads: "2:2", files: { "public/file.txt" => "a file" }, settings: { files: { public: "always" } })
    10.times { |n| get("/posts/#{n}?page=#{n}", to: own) }
    20.times { get("/hog", to: own) }
    20.times { get("/waits", to: own) }
    5.times { get("/objects", to: own) }
    2.times { get("/raise", to: own) }
    3.times { |n| get("/unknown/path-#{n}", to: own) }
    get("/file.txt", to: own)
    hog, waits = [["GET /hog", 20], ["GET /waits", 20]].map { |name, count| route(name, count, own) }
    assert_equal ["GET /posts/:id", 10, 0], route("GET /posts/:id", 10, own).values_at("route", "2xx", "failures")
    assert_equal [3, 3], route("(not found)", 3, own).values_at("requests", "4xx")
    assert_equal [1, 0], route("(file)", 1, own).values_at("requests", "share")
    assert_equal [2, 2], route("GET /raise", 2, own).values_at("5xx", "failures")
    [hog, waits].each { |one| assert_adds_up(one) }
    # The first request of a slow thread may not be measured.
    assert_operator hog["measured"], :>=, 15
    assert_operator hog["cpu_ms"], :>, 20 * 20
    assert_operator waits["cpu_ms"], :<, hog["cpu_ms"] / 2
    assert_operator waits["waiting_ms"], :>, 20 * 20
    assert_operator route("GET /objects", 5, own)["allocations"], :>, 5 * 10_000
    assert_nil hog["queries"]
    assert_equal "GET /hog", routes(own, "?sort=cpu&limit=1").fetch(0)["route"]
    assert_equal 1, routes(own, "?sort=requests&limit=1").length
    assert_in_delta 1, routes(own).sum { |one| one["share"] }, 0.001
    assert_includes own.control("/stats")["routes"].map { |one| one["route"] }, "GET /hog"
    refute_match(/route="GET/, own.metrics, "paths of clients are no labels")
    assert_match(/firebrick_route_requests_total\{route="\(other\)",status="2xx"\} \d+/, own.metrics)
  end

  # The most memory that tens of thousands of paths may add to the server: the table has 100 rows of 2.5 KiB in each thread.
  MOST_GROWTH = 12 << 20
  FRONT_THREADS = 2

  it "keeps a bounded table, and no more memory, whatever paths clients make up" do
    own = launch(threads: "1:1", settings: { stats: { routes: 100 }, front_threads: FRONT_THREADS })
    resident = -> { File.read("/proc/#{own.pid}/status")[/^VmRSS:\s+(\d+) kB/, 1].to_i * 1024 }
    random = Random.new(7)
    word = -> { Array.new(random.rand(8..60)) { ("g".."z").to_a.sample(random: random) }.join }
    send_paths = lambda do |count|
      connection = connect(own)
      count.times.each_slice(100) do |slice|
        connection.write(slice.map { request("GET", "/#{word[]}/#{word[]}") }.join)
        slice.each { assert_equal 200, connection.read_response.status }
      end
      connection.close
    end
    # Buffers and tables of all kinds have their sizes by then.
    send_paths[5_000]
    before = resident[]
    send_paths[40_000]
    grown = resident[] - before
    assert_operator grown, :<, MOST_GROWTH
    table = wait_until("all requests are counted") { routes(own).then { |all| all if all.sum { |one| one["requests"] } >= 45_000 } }
    assert_operator table.length, :<=, (100 * FRONT_THREADS) + 10
    assert_operator table.find { |one| one["route"] == "(other)" }["requests"], :>, 40_000
  end

  it "names routes as the app says, cleaned, with a limit" do
    own = launch(settings: { log: { access: "access.log", format: "json" }, stats: { routes: 2_000 } }, leaves: ["access.log"])
    3.times { get("/named/x?one", to: own) }
    get("/named/x?#{'y' * 300}", to: own)
    named = route("shop: é one", 3, own)
    assert named["named"]
    assert_match(/firebrick_route_requests_total\{route="shop: é one",status="2xx"\} 3/, own.metrics.force_encoding("UTF-8"))
    long = routes(own).find { |one| one["route"].end_with?("yyy") }
    assert_operator long["route"].bytesize, :<=, 200
    lines = wait_until("four lines") { File.readlines(own.path("access.log")).then { |all| all if all.length >= 4 } }
    assert_includes lines.map { |line| JSON.parse(line)["route"] }, "shop: é one"
    # More names than a worker may have: the rest goes by its paths.
    connection = connect(own)
    1_100.times do |n|
      connection.write(request("GET", "/named/all?n#{n}"))
      connection.read_response("GET")
    end
    # Two names are those of the requests before.
    assert_equal 102, route("GET /named/all", 102, own)["2xx"]
  end

  it "keeps as many routes as the setting says, and sums are exact" do
    own = launch(settings: { stats: { routes: 20 } })
    200.times { get("/posts/1", to: own) }
    words = ("aaa".."zzz").first(1_000)
    connection = connect(own)
    words.each do |word|
      connection.write(request("GET", "/page-#{word}"))
      connection.read_response("GET")
    end
    wait_until("all requests") { routes(own).sum { |one| one["requests"] } == 1_200 }
    assert_operator routes(own).length, :<=, 21
    assert_equal 200, route("GET /posts/:id", 200, own)["requests"]
    assert_operator routes(own).find { |one| one["route"] == "(other)" }["requests"], :>, 900
    File.write(own.path("firebrick.toml"), File.read(own.path("firebrick.toml")).sub("routes = 20", "routes = 0"))
    assert_equal 0, own.command_line("reload", own.dir).last
    wait_until("no routes") { routes(own).empty? }
    assert_match(/stats.routes is 0/, own.command_line("routes", own.dir).first)
  end

  it "counts hits of the cache for the route that made the response" do
    own = launch(settings: { cache: { memory: "16MiB" } })
    5.times { assert_equal "kept", get("/kept", to: own).body }
    kept = route("GET /kept", 5, own)
    assert_equal [4, 5], kept.values_at("cache_hits", "2xx")
    assert_equal 1, kept.dig("app_ms", "count")
  end

  it "counts a request whose worker was killed" do
    own = launch
    assert_status 502, get("/die", to: own)
    dead = route("GET /die", 1, own)
    assert_equal [1, 1], dead.values_at("5xx", "failures")
    assert_status 200, get("/posts/2", to: own)
    route("GET /posts/:id", 1, own)
  end

  it "prints a table of 100 columns, sorts it, forgets, and refuses what it does not know" do
    own = launch
    5.times { get("/hog", to: own) }
    20.times { get("/posts/3", to: own) }
    route("GET /posts/:id", 20, own)
    table, _, code = own.command_line("routes", own.dir)
    assert_equal 0, code
    lines = table.lines(chomp: true)
    assert(lines.all? { |line| line.length <= 100 }, table)
    assert_match(/\A25 requests in .* in the app/, lines[0])
    assert_equal %w[route req/s share p50 p95 p99 queue CPU GVL GC alloc SQL ms KiB err], lines[1].split
    assert_match(%r{\AGET /hog }, lines[2])
    by_requests = own.command_line("routes", own.dir, "--sort", "requests", "--limit", "1").first
    assert_match(%r{^GET /posts/:id }, by_requests)
    assert_match(/1 more/, by_requests)
    assert_equal "GET /hog", JSON.parse(own.command_line("routes", own.dir, "--json", "--sort", "cpu").first)["routes"][0]["route"]
    assert_match(%r{GET /hog +\$\d+}, own.command_line("routes", own.dir, "--price", "$40/month").first)
    [["--sort", "name"], ["--limit", "0"], ["--price", "dear"], ["--reset", "--json"]].each do |wrong|
      _, error, code = own.command_line("routes", own.dir, *wrong)
      assert_equal 2, code, error
      assert_match(/#{wrong[0]}/, error)
    end
    assert_equal 0, own.command_line("routes", own.dir, "--reset").last
    assert_empty routes(own)
    get("/posts/4", to: own)
    assert_equal 1, route("GET /posts/:id", 1, own)["requests"]
  end

  it "shows intervals" do
    own = launch
    get("/posts/5", to: own)
    watching = own.begin_command("routes", own.dir, "--watch", "--json")
    intervals = -> { watching.output.lines.select { |line| line.end_with?("\n") }.map { |line| JSON.parse(line)["routes"] } }
    wait_until("an interval with requests") do
      get("/hog", to: own)
      intervals.call.flatten.any? { |one| one["route"] == "GET /hog" }
    end
    refute(intervals.call.flatten.any? { |one| one["route"] == "GET /posts/:id" }, "it was before the first interval")
  ensure
    watching&.kill
  end

  it "knows the routes with fibers, in an attached server, and with the plain-Ruby worker" do
    plain = { env: { "FIREBRICK_PURE" => "1" } }
    { "fibers" => { settings: { fibers: 50 } }, "plain Ruby" => plain, "two workers" => { workers: 2, threads: "3:3" } }.each do |name, options|
      own = launch(**options)
      20.times { get("/waits", to: own) }
      5.times { get("/named/x?kind", to: own) }
      waits = route("GET /waits", 20, own)
      named = route("shop: é kind", 5, own)
      assert named["named"], name
      assert_operator waits["app_sum_ms"], :>, 20 * 25, name
      assert_operator waits["cpu_ms"] || 0, :<, 20 * 20, name
    end
  end
end

class FrameworkRoutesTest < Case
  parallel!

  include Routes
  include Upgrading

  def before_setup
    super
    firebrick_only
  end

  def installed!(gem)
    skip "#{gem} is not installed" unless system(ENV.fetch("RUBY", "ruby"), "-e", "gem #{gem.inspect}", out: File::NULL, err: File::NULL)
  end

  it "takes the names of Sinatra's routes" do
    installed!("sinatra")
    app = <<~'RUBY'
      require "sinatra/base"
      class App < Sinatra::Base
        get("/names/:name/?:second?") { params[:name] }
        post("/names") { 201 }
        get("/raise") { raise "an error of the app" }
        not_found { "none" }
      end
      run App
    RUBY
    own = start(app: app)
    3.times { |n| get("/names/#{%w[ann bob eve][n]}", to: own) }
    post("/names", "x=1", to: own)
    get("/raise", to: own)
    get("/nothing", to: own)
    assert_equal [true, 3], route("GET /names/:name/?:second?", 3, own).values_at("named", "2xx")
    assert_equal 1, route("POST /names", 1, own)["2xx"]
    assert_equal 1, route("GET /raise", 1, own)["failures"]
    assert_equal 1, route("(not found)", 1, own)["4xx"]
  end

  it "takes the names of Grape's routes, also of an API that Rack mounts" do
    installed!("grape")
    app = <<~'RUBY'
      require "grape"
      class API < Grape::API
        version "v1", using: :path
        format :json
        resource(:posts) { route_param(:id) { get { { id: params[:id] } } } }
      end
      map("/api") { run API }
    RUBY
    own = start(app: app)
    3.times { |n| assert_status 200, get("/api/v1/posts/p#{n}", to: own) }
    named = wait_until("a name") { routes(own).find { |one| one["named"] } }
    assert_match(%r{\AGET /.*posts/:id}, named["route"])
    assert_equal 3, named["requests"]
  end

  it "counts the queries of Sequel" do
    installed!("sequel")
    app = <<~'RUBY'
      require "sequel"
      DB = Sequel.sqlite
      run(lambda do |env|
        5.times { |n| DB.fetch("select #{n} as n").all } if env["PATH_INFO"] == "/five"
        [200, {}, ["ok"]]
      end)
    RUBY
    own = start(app: app)
    4.times { get("/five", to: own) }
    five = route("GET /five", 4, own)
    assert_equal 20, five["queries"]
    assert_operator five["queries_ms"], :>, 0
  end

  RAILS_ROUTES = <<~'RUBY'
    class RoutesController < ActionController::Base
      def hog
        over = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) + 0.03
        nil until Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) >= over
        head :ok
      end

      def queries
        7.times { |n| ActiveRecord::Base.connection.execute("select #{n}") }
        head :ok
      end
    end
  RUBY

  it "takes the names of Rails' actions, counts their queries, and knows whose the worker's CPU is" do
    rails_only
    table = RailsApp.files.fetch("config/routes.rb").sub(/^end\s*\z/, "  get \"/x/:id/:action\", controller: \"routes\"\nend\n")
    files = { "app/controllers/routes_controller.rb" => RAILS_ROUTES, "config/routes.rb" => table }
    own = start(**RailsApp.options(workers: 1, threads: "1:1", files: files))
    # Connecting takes queries, too.
    %w[/up /x/0/queries /x/0/hog].each { |path| get(path, to: own) }
    before = own.control("/stats")["workers"][0]["cpu_ms"]
    assert_equal 0, own.command_line("routes", own.dir, "--reset").last
    5.times { |n| assert_status 200, get("/x/#{n}/queries", to: own) }
    40.times { |n| assert_status 200, get("/x/#{n}/hog", to: own) }
    get("/nothing/here", to: own)
    queries = route("routes#queries", 5, own)
    hog = route("routes#hog", 40, own)
    assert_equal [true, 35], queries.values_at("named", "queries")
    assert_equal [0, true], [hog["queries"], queries["queries_ms"].positive?]
    assert_equal "routes#hog", routes(own).fetch(0)["route"]
    [queries, hog].each { |one| assert_adds_up(one) }
    used = own.control("/stats")["workers"][0]["cpu_ms"] - before
    attributed = routes(own).sum { |one| one["cpu_ms"].to_f }
    assert_operator attributed, :>=, 0.95 * used, "of #{used} ms of the worker"
    assert_match(/firebrick_route_requests_total\{route="routes#hog",status="2xx"\} 40/, own.metrics)
    assert_match(/firebrick_route_queries_total\{route="routes#queries"\} 35/, own.metrics)
    field = get("/x/1/queries", to: own, headers: { "Firebrick-Timing" => "1" }).all("server-timing").find { |value| value.include?("queue;") }
    assert_match(/route;desc="routes#queries"/, field)
    assert_match(/sql;desc="7";dur=/, field)
  end

  it "counts anew in the program that takes over" do
    app = "run ->(env) { env['firebrick.route'] = File.read('version.txt'); [200, {}, []] }"
    own = launch(app: app, version: "one")
    2.times { get("/a", to: own) }
    route("one", 2, own)
    deploy(own, "two")
    assert_upgrades(own)
    get("/a", to: own)
    assert_equal 1, route("two", 1, own)["requests"]
    refute(routes(own).any? { |one| one["route"] == "one" })
  end

  it "takes new names after a reload" do
    app = "run ->(env) { env['firebrick.route'] = %s; [200, {}, []] }"
    own = start(app: format(app, "'old name'"))
    2.times { get("/a", to: own) }
    route("old name", 2, own)
    File.write(own.path("config.ru"), format(app, "'new name'"))
    assert_equal 0, own.command_line("reload", own.dir).last
    3.times { get("/a", to: own) }
    assert_equal 3, route("new name", 3, own)["requests"]
    assert_equal 2, route("old name", 2, own)["requests"]
  end
end
