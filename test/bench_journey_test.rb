# frozen_string_literal: true

# `firebrick bench --journey`: users who log in, take values from responses, and go on with them.

require "support/bench_case"
require "support/rails_app"

# A shop: a form with a token bound to the session's cookie, a list in JSON, and pages that only a user may see. /stats counts the logins.
BENCH_JOURNEY_APP = <<~'RUBY'
  require "json"
  require "rack/utils"
  require "securerandom"

  TOKENS, USERS, LOCK = {}, Hash.new(0), Mutex.new
  run lambda { |env|
    session = env["HTTP_COOKIE"].to_s[/session=(\w+)/, 1]
    form = Rack::Utils.parse_query(env["rack.input"].read)
    html = { "content-type" => "text/html" }
    case [env["REQUEST_METHOD"], env["PATH_INFO"]]
    when ["GET", "/login"]
      session, token = SecureRandom.hex(8), "#{SecureRandom.base64(12)}+/&"
      LOCK.synchronize { TOKENS[session] = token }
      page = "<form><input type='hidden' value=\"#{Rack::Utils.escape_html(token)}\" name=\"authenticity_token\"></form>"
      [200, html.merge("set-cookie" => "session=#{session}; Path=/; HttpOnly"), [page]]
    when ["POST", "/login"]
      right = LOCK.synchronize { TOKENS[session] && TOKENS[session] == form["authenticity_token"] && USERS[form["user"]] += 1 }
      right ? [302, { "location" => "http://#{env['HTTP_HOST']}/list?by=name" }, []] : [422, html, ["wrong token"]]
    when ["GET", "/list"]
      signed = LOCK.synchronize { TOKENS.key?(session) } && env["QUERY_STRING"] == "by=name"
      signed ? [200, { "content-type" => "application/json" }, [JSON.generate("items" => [{ "id" => 17 }])]] : [401, html, ["no"]]
    when ["PUT", "/items/17"]
      sleep 0.03
      [200, html, ["saved #{JSON.parse(form.keys.first)['title']} #{env['HTTP_X_AGENT']}"]]
    when ["GET", "/stats"] then [200, html, [LOCK.synchronize { JSON.generate(USERS) }]]
    else [404, html, ["none"]]
    end
  }
RUBY

BENCH_JOURNEY = <<~'TOML'
  repeat = { from = "list", times = 2 }

  [variables]
  password = "a secret"

  [[step]]
  name = "form"
  path = "/login"
  take.token = { csrf = true }

  [[step]]
  name = "login"
  path = "/login"
  form = { user = "ann${user}", password = "${password}", authenticity_token = "${token}" }
  expect.status = 302
  take.next = { header = "Location" }

  [[step]]
  name = "list"
  path = "${next}"
  take.id = { json = "/items/0/id" }
  think = "10ms"

  [[step]]
  name = "save"
  method = "PUT"
  path = "/items/${id}"
  headers = { X-Agent = "user ${user}" }
  json = { title = "title" }
  expect.text = "saved title user"
TOML

class BenchJourneyTest < BenchCase
  quiet!

  shared_server app: BENCH_JOURNEY_APP, workers: 1, threads: "8:8"

  # Runs bench with a journey in a file.
  def travel(text, *args, url: server.url.chomp("/"))
    in_folder do |dir|
      File.write("#{dir}/shop.toml", text)
      bench(url, "--journey", "shop.toml", *args, dir: dir)
    end
  end

  def figures(text, *args)
    out, err, code = travel(text, *args, "--format", "json")
    assert_equal 0, code, err
    JSON.parse(out)
  end

  it "logs in, follows values, and repeats a part, for each user" do
    before = JSON.parse(get("/stats").body).keys.size
    found = figures(BENCH_JOURNEY, "-c", 3, "-r", 2)
    assert_equal({ "form" => 6, "login" => 6, "list" => 18, "save" => 18 }, found["outcome"]["requests"].to_h { |step| step.values_at("name", "ok") })
    assert_equal 0, found.dig("summary", "errors"), found["outcome"]["errors"]
    journeys = found.dig("summary", "journeys")
    assert_equal [6, 0], journeys.values_at("complete", "failed")
    assert_operator journeys.dig("time_ms", "p50"), :>, 3 * (30 + 10), "three times list and save, with the pause"
    assert_operator JSON.parse(get("/stats").body).keys.size, :>=, [before, 3].max, "each user has a number"
  end

  it "begins journeys at a rate" do
    found = figures(BENCH_JOURNEY, "--rate", "20/s", "-d", "2s", "--grace", "5s")
    journeys = found.dig("summary", "journeys")
    assert_in_delta 38, journeys["complete"], 8
    assert_equal 0, journeys["failed"]
  end

  it "divides journeys among processes" do
    assert_equal 8, figures(BENCH_JOURNEY, "-c", 4, "-n", 8, "--workers", 2).dig("summary", "journeys", "complete")
  end

  it "abandons a journey whose step fails, and says why" do
    wrong = BENCH_JOURNEY.sub("${token}\"", "x${token}\"")
    out, _, code = travel(wrong, "-c", 2, "-r", 3, "--fail-if", "errors>0")
    assert_equal 1, code
    assert_match(/6 x step "login": status 422/, out)
    assert_match(/^ +6 +0 .* form$/, out)
    assert_match(/^ +0 +6 .* login$/, out)
    assert_match(/^ +0 +0 .* list$/, out)
    assert_match(/^ +0 +6 .* whole journey/, out)
    out, = travel(BENCH_JOURNEY.sub("/items/0/id", "/items/1/id"), "-c", 1, "-r", 1)
    assert_match(/step "list": the response has no id to take \(status 200\)/, out)
    out, = travel(BENCH_JOURNEY.sub("saved title", "lost title"), "-c", 1, "-r", 1)
    assert_match(/step "save": the body does not contain "lost title user"/, out)
  end

  it "explains mistakes in the file and in flags" do
    _, err, code = travel("[[step]]\nname = \"a\"\npath = \"/${x}\"\nfrom = 1\n")
    assert_equal 2, code
    assert_match(/shop\.toml:3: step "a": path: x has no value here/, err)
    assert_match(/shop\.toml:4: step "a": from is unknown/, err)
    {
      ["--body", "x"] => /the file describes/, ["--expect-body", "x"] => /each step expects/, ["--think", "1s"] => /own pause/,
      ["--find", "p95<1s"] => /a search counts requests/, ["--http", "2"] => %r{needs HTTP/1\.1}, ["--format", "wrk"] => /cannot show a journey/,
      ["http://other.test/"] => /exactly one URL/
    }.each do |args, why|
      _, err, code = travel(BENCH_JOURNEY, *args)
      assert_equal 2, code, args.inspect
      assert_match why, err
    end
    _, err, code = bench(server.url("/x"), "--journey", "/nowhere.toml")
    assert_equal 2, code
    assert_match(/paths come from the file/, err)
    assert_match(%r{/nowhere\.toml: No such file}, err)
  end
end

# Rails encrypts its session and masks its tokens: each page has another one.
class BenchRailsJourneyTest < BenchCase
  parallel!

  it "sends a form of a Rails app with its token" do
    rails_only
    own = start(**RailsApp.options(workers: 1, threads: "1:4", args: []))
    in_folder do |dir|
      File.write("#{dir}/form.toml", <<~'TOML')
        [[step]]
        path = "/form"
        take.token = { csrf = true }

        [[step]]
        path = "/form"
        form = { authenticity_token = "${token}", text = "t ${user} ${turn}" }
        expect.status = 302
        take.next = { header = "Location" }

        [[step]]
        path = "${next}"
        expect.text = "saved t "
      TOML
      found = result(own.url.chomp("/"), "--journey", "form.toml", "-c", 2, "-r", 3, dir: dir)
      assert_equal [6, 0], found.dig("summary", "journeys").values_at("complete", "failed"), found["outcome"]["errors"]
    end
  end
end
