# frozen_string_literal: true

# `firebrick reload --shadow`: what a new release does differently is found in copies of requests, before a client meets it, and the copies
# change nothing.

require "json"
require "support/http2_client"
require "support/load"
require "support/rails_app"
require "support/reloading"
require "support/tls_case"

class ReloadShadowTest < TlsCase
  parallel! slow: true

  include Reloading

  # Each path has an id, a time and a nonce of its own. A release has one fault.
  APP = <<~'RUBY'
    require "json"
    require "securerandom"
    fault = File.read(File.join(__dir__, "version.txt"))
    WASTE = fault == "memory" ? Array.new(160) { "x" * 1_000_000 } : nil
    run lambda { |env|
      side = env["firebrick.shadow"]
      if side
        File.write("shadow.#{Process.pid}", env.select { |key, _| key.match?(/COOKIE|AUTH|REQUEST_ID/) }.to_json)
        File.rename("shadow.#{Process.pid}", "shadow-#{side}")
      end
      path = env["PATH_INFO"]
      env["firebrick.route"] = "shop#{path.sub(/\d+/, ':id').tr('/', '#')}" unless path == "/up"
      headers = { "content-type" => "text/html", "x-frame-options" => "DENY", "cache-control" => "private", "x-version" => fault,
                  "set-cookie" => "id=#{SecureRandom.hex}; path=/; httponly" }
      case path
      when "/up" then [200, headers, ["up"]]
      when "/json"
        item = { id: rand(1000), at: Time.now.to_s, SecureRandom.hex => 1 }
        item[:author] = { name: "x" } unless fault == "key"
        [200, headers.merge("content-type" => "application/json"), [{ items: [item] * rand(1..3) }.to_json]]
      when "/page"
        headers.delete("x-frame-options") if fault == "header"
        rows = (1..rand(1..3)).map { |n| "<tr id=row_#{n}><td>#{rand}</td></tr>" }.join
        button = fault == "element" ? "" : "<button class='buy' name='buy'>buy</button>"
        [200, headers, ["<body><table>#{rows}</table><p class=#{%w[odd even].sample}>#{Time.now}</p>#{button}</body>"]]
      when "/head"
        [env["REQUEST_METHOD"] == "HEAD" && fault == "head" ? 404 : 200, headers, ["x"]]
      when "/slow"
        until_at = Process.clock_gettime(Process::CLOCK_MONOTONIC) + (fault == "slow" ? 0.0075 : 0.005)
        nil while Process.clock_gettime(Process::CLOCK_MONOTONIC) < until_at
        [200, headers, ["x"]]
      when %r{\A/item/(\d+)}
        raise "planted" if fault == "one" && $1.to_i % 10 == 7
        [200, headers, [$1]]
      when "/stream" then [200, headers.merge("content-type" => "text/event-stream"), Enumerator.new { |to| loop { to << "data: x\n\n"; sleep 0.1 } }]
      when "/status" then [fault == "status" ? 302 : 200, headers, ["x"]]
      else [404, headers, ["no"]]
      end
    }
  RUBY

  PATHS = %w[/json /page /head /slow /status].freeze

  # The fault => what is said about it.
  FAULTS = {
    "key" => %r{shop#json: JSON \$\.items\[\]\.author is missing \(object\) \(\d+ requests?: GET /json\)},
    "header" => %r{shop#page: header x-frame-options is missing \(deny\) \(\d+ requests?: GET /page\)},
    "element" => /shop#page: HTML body > button\.buy\[name=buy\] is missing/,
    "head" => %r{HEAD shop#head: status was 200, is 404 \(\d+ requests?: HEAD /head\)},
    "status" => %r{shop#status: status was 200, is 302 \(\d+ requests?: GET /status\)},
    "one" => %r{shop#item#:id: status was 200, is 500 \(\d+ requests?: GET /item/\d*7},
    "memory" => /a worker takes \d+ MiB of resident memory, one of the old code \d+ MiB after the same requests/
  }.freeze

  # The path that has a fault.
  AT = { "key" => "/json", "header" => "/page", "element" => "/page", "one" => "/item/N" }.freeze

  def launch(app: APP, settings: {}, **options)
    firebrick_only
    reloads = { on_difference: "undo" }.merge(settings.fetch(:reload, {}))
    launch_app(app: app, version: "good", workers: 2, threads: "2:2", settings: settings.merge(reload: reloads),
               leaves: %w[shadow-old shadow-new], **options)
  end

  # Sends requests in turn until the block returns. Returns its value and the versions that the clients have met.
  def with_clients(own, paths, headers = {})
    over = false
    number = 0
    met = []
    client = Thread.new do
      until over
        path = paths[number % paths.size].sub("N") { number.to_s }
        number += 1
        met << get(path, to: own, headers: headers)["x-version"]
        sleep 0.002
      end
    end
    [yield, met]
  ensure
    over = true
    client.join(10)
  end

  def differences(own)
    JSON.parse(own.command_line("reload", own.dir, "--differences", "--json").first)
  end

  FAULTS.each do |fault, message|
    it "finds #{fault} before a client meets it, and undoes the reload" do
      own = launch
      deploy(own, fault)
      before = workers_of(own).sort
      (out, err, code), met = with_clients(own, [AT.fetch(fault, "/#{fault}")]) { reload(own, "--shadow", "10s") }
      assert_equal 1, code, -> { out + err }
      assert_match message, err
      assert_equal ["good"], met.uniq
      assert_workers own, before
    end
  end

  it "reports a difference, goes on, and keeps it" do
    own = launch(settings: { reload: { on_difference: "report" } })
    deploy(own, "key")
    (out, err, code), met = with_clients(own, PATHS) { reload(own, "--shadow", "3s") }
    assert_equal 0, code, -> { out + err }
    assert_match(/^shadowing: \d+ requests compared on \d+ routes: 1 difference; by route: /, out)
    assert_match FAULTS["key"], out
    # A client may have met it before the command ended.
    assert_includes [*met, get("/json", to: own)["x-version"]], "key"
    found = differences(own).fetch("differences")
    assert_equal([["shop#json", "JSON $.items[].author", "object", nil, false]], found.map { |one| one.values_at("route", "part", "old", "new", "worse") })
    assert_match FAULTS["key"], own.command_line("reload", own.dir, "--differences").first
  end

  [["threads", {}], ["fibers", { args: ["--fibers", "8"] }], ["plain Ruby", { env: { "FIREBRICK_PURE" => "1" } }]].each do |mode, options|
    it "finds no difference in an app that has not changed, with #{mode}" do
      own = launch(**options)
      (out, err, code), met = with_clients(own, PATHS, "Cookie" => "secret=1", "Authorization" => "Basic c2VjcmV0") { reload(own, "--shadow", "4s") }
      assert_equal 0, code, -> { out + err }
      assert_match(/^shadowing: \d+ requests compared on \d+ routes: no difference/, out)
      refute_match(/failed/, out)
      assert_operator met.size, :>, 50
      %w[old new].each do |side|
        env = JSON.parse(File.read(own.path("shadow-#{side}")))
        assert_match(/\Afirebrick-shadow-#{side}-\h{8}\z/, env["HTTP_X_REQUEST_ID"])
        assert_nil env["HTTP_COOKIE"] || env["HTTP_AUTHORIZATION"]
      end
    end
  end

  it "finds it with plain Ruby, and in copies of requests over HTTP/2" do
    own = launch(env: { "FIREBRICK_PURE" => "1" }, binds: ["tcp://127.0.0.1:0?h2c=true"])
    deploy(own, "key")
    command = Thread.new { reload(own, "--shadow", "20s") }
    client = Http2Client.new(own.address)
    met = []
    met << client.get("/json")["x-version"] while command.alive? && met.size < 3000
    out, err, code = command.value
    assert_equal 1, code, -> { out + err }
    assert_match FAULTS["key"], err
    assert_equal ["good"], met.uniq
  end

  it "finds it in copies of requests over HTTP/3, before a client meets it" do
    own = launch(files: pair("own", "127.0.0.1"), binds: ["ssl://127.0.0.1:0?cert=own.pem&key=own.key"])
    deploy(own, "key")
    load = own.begin_command("bench", "https://127.0.0.1:#{own.port}/json", *%w[-k --http 3 -c 1 --rate 100/s -d 10s --expect-body author --format json])
    out, err, code = reload(own, "--shadow", "6s")
    assert_equal 1, code, -> { out + err }
    assert_match FAULTS["key"], err
    found = JSON.parse(load.wait.output[/^\{.*/m])
    # A busy machine may not send all requests in time.
    assert_operator found.dig("summary", "requests"), :>, 50
    assert_equal({ "200" => found.dig("summary", "requests") }, found.dig("outcome", "statuses"))
    assert_equal 0, found.dig("outcome", "errors", "body"), found["outcome"]["errors"].inspect
  end

  it "gives a verdict from the probes without traffic, and says so" do
    own = launch
    out = assert_reloads(own, "--shadow", "1s")
    assert_match(%r{^shadowing: no request of a client could be compared; the verdict is from the probes \(GET /up\): no difference$}, out)
    assert_empty differences(own).fetch("differences")
  end

  it "compares no streams, names them, and goes on" do
    own = launch
    client = connect(own)
    command = Thread.new { reload(own, "--shadow", "4s") }
    wait_until("the shadow") { own.stats.dig("reloads", "running", "stage") == "shadowing" }
    sleep 1
    client.write(request("GET", "/stream"))
    out, err, code = command.value
    assert_equal 0, code, -> { out + err }
    assert_match(%r{not compared: GET /stream \(a stream\)}, out)
    client.close
  end

  it "does not take the mark from a client, and shadows nothing afterwards" do
    own = launch
    response = get("/json", to: own, headers: { "Firebrick-Shadow" => "new", "firebrick.shadow" => "new" })
    assert_status 200, response
    assert_reloads(own, "--shadow", "300ms")
    FileUtils.rm_f(%w[old new].map { |side| own.path("shadow-#{side}") })
    5.times { get("/json", to: own) }
    refute File.exist?(own.path("shadow-new"))
    assert_equal(2, own.stats.fetch("workers").count { |worker| worker["state"] == "ready" })
  end

  it "can be cancelled, and takes a setting" do
    own = launch(settings: { reload: { shadow: "30s" } })
    command = Thread.new { reload(own) }
    wait_until("the shadow") { own.stats.dig("reloads", "running", "stage") == "shadowing" }
    out, _, code = reload(own, "--undo")
    assert_equal 0, code, out
    _, err, code = command.value
    assert_equal 1, code
    assert_match(/it was undone/, err)
    wait_until("the workers") { own.stats.fetch("workers").count { |worker| worker["state"] == "ready" } == 2 }
  end

  it "is left out with 0, whatever the setting says" do
    own = launch(settings: { reload: { shadow: "30s", watch: 0 } })
    %w[0 0s].each do |none|
      out, err, code = own.command_line("reload", "--dir", own.dir, "--shadow", none)
      assert_equal 0, code, err
      refute_match(/shadowing/, out)
    end
    _, err, code = reload(own, "--shadow", "50ms")
    assert_equal [2, "error: --shadow 50ms: expected a time from 100ms to 24h, such as 2m, or 0 for none\n"], [code, err]
  end

  it "explains options that are wrong" do
    own = launch
    { %w[--shadow x] => /--shadow x: expected a time from 100ms to 24h, such as 2m/, %w[--shadow 1s --in-place] => /--shadow does not go with --in-place/,
      %w[--shadow 1s --undo] => /--shadow does not go with --undo/, %w[--json] => /--json belongs to --differences/,
      %w[--differences --undo] => /give it alone/ }.each do |words, message|
      _, err, code = reload(own, *words)
      assert_equal 2, code, err
      assert_match message, err
    end
    assert_match(/no reload of this server has compared copies/, own.command_line("reload", own.dir, "--differences").first)
  end
end

# Alone, because it measures times.
class ReloadShadowTimesTest < Case
  quiet! 30

  include Reloading

  APP = <<~'RUBY'
    TIME = File.read(File.join(__dir__, "version.txt")) == "slow" ? 0.015 : 0.01
    run lambda { |env|
      sleep TIME if env["PATH_INFO"] == "/slow"
      [200, { "content-type" => "text/plain", "x-version" => TIME.to_s }, ["x"]]
    }
  RUBY

  it "finds a route that takes half as long again before a client meets it" do
    firebrick_only
    own = launch_app(app: APP, version: "good", workers: 2, threads: "2:2")
    load = Load.new(own.address, clients: 1, path: "/slow").start
    deploy(own, "slow")
    out, err, code = reload(own, "--shadow", "60s")
    load.stop
    assert_equal 1, code, -> { out + err }
    assert_match(%r{GET /slow p\d\d is 1\d\.\d ms, was 1\d\.\d ms \(an accident with a probability below 1 in \d{4,}\); no client has met it}, err)
    assert_empty load.errors
  end
end

# In Rails, copies write nothing to the database, and their lines of the log have a mark.
class ReloadShadowRailsTest < Case
  parallel! slow: true

  include Reloading

  CONTROLLER = <<~'RUBY'
    class ShopController < ActionController::Base
      FAULT = File.read(Rails.root.join("version.txt"))

      def index
        entries = Entry.order(:id).first(20)
        entries.each(&:reload) if FAULT == "queries"
        body = { entries: entries.map { |one| { id: one.id, text: one.text } }, at: Time.now }
        body.delete(:at) if FAULT == "key"
        response.headers["X-Version"] = FAULT
        render json: body
      end

      # Behind a login, as docs/reload.md shows it.
      def account
        return head(:unauthorized) unless current_user

        response.headers["X-Version"] = FAULT
        render json: { name: current_user, at: Time.now }.except(FAULT == "key" ? :at : nil)
      end

      def current_user = cookies[:user] || ("shadow" if request.env.key?("firebrick.shadow"))

      def counter
        Entry.create!(text: "a visit")
        response.headers["X-Version"] = FAULT
        render plain: Entry.count.to_s
      end

      def rescued
        begin
          Entry.create!(text: "a visit")
        rescue StandardError
          nil
        end
        response.headers["X-Version"] = FAULT
        render plain: "x"
      end
    end
  RUBY

  ROUTES = <<~'RUBY'
    Rails.application.routes.append do
      get "shop" => "shop#index"
      get "account" => "shop#account"
      get "counter" => "shop#counter"
      get "rescued" => "shop#rescued"
    end
  RUBY

  FILES = { "app/controllers/shop_controller.rb" => CONTROLLER, "config/initializers/shop.rb" => ROUTES, "version.txt" => "good" }.freeze

  def before_setup
    super
    rails_only
    firebrick_only
  end

  def launch(**options)
    settings = { reload: { watch: "0s", on_difference: "report" } }
    start(**RailsApp.options(files: FILES, workers: 2, threads: "2:2", settings: settings, **options))
  end

  def counted(own)
    get("/counter", to: own).body.to_i
  end

  def with_clients(own, path, headers = {})
    over = false
    met = []
    client = Thread.new { met << get(path, to: own, headers: headers).tap { sleep 0.02 } until over }
    [yield, met.map { |one| one["x-version"] }, met]
  ensure
    over = true
    client.join(10)
  end

  { "queries" => %r{shop#index: queries was \d, is 2\d \(\d+ requests?: GET /shop\)}, "key" => /JSON \$\.at is missing/ }.each do |fault, message|
    it "finds #{fault} before a client meets it" do
      own = launch
      25.times { counted(own) }
      deploy(own, fault)
      (out, err, code), met = with_clients(own, "/shop") { reload(own, "--shadow", "6s") }
      assert_match message, out + err
      # More queries are worse, another page is not.
      assert_equal fault == "queries" ? 1 : 0, code, -> { out + err }
      assert_equal ["good"], met.uniq if fault == "queries"
    end
  end

  it "finds it behind a login, if the app serves copies as for a user of its own" do
    own = launch
    deploy(own, "key")
    (out, err, code), = with_clients(own, "/account", "Cookie" => "user=ada") { reload(own, "--shadow", "4s") }
    assert_equal 0, code, -> { out + err }
    assert_match(%r{shop#account: JSON \$\.at is missing \(string\) \(\d+ requests?: GET /account\)}, out)
    assert_status 401, get("/account", to: own, headers: { "firebrick.shadow" => "new", "Firebrick-Shadow" => "new" })
  end

  %w[/counter /rescued].each do |path|
    it "writes nothing in copies of #{path}, and names the route" do
      own = launch
      before = counted(own)
      (out, err, code), _, met = with_clients(own, path) { reload(own, "--shadow", "4s") }
      assert_equal 0, code, -> { out + err }
      assert_match(/not compared: GET #{path} \(a GET that writes to the database\)/, out)
      assert_equal before + met.size + 1, counted(own), "only clients write"
    end
  end

  it "marks the lines of the log" do
    own = launch
    with_clients(own, "/shop?page=2") { assert_reloads(own, "--shadow", "3s") }
    lines = (own.stdout + own.stderr).lines
    copies = lines.grep(%r{Started (GET|HEAD) "/shop.*for}).select { |line| line.include?("firebrick") }
    assert_operator copies.size, :>, 5
    assert(copies.all? { |line| line.match?(/firebrick shadow (old|new)/) })
  end
end
