# frozen_string_literal: true

# Data that mruby handlers pass to later ones or share: variables, rate limits, access.

require "support/case"

class MrubyKitTest < Case
  parallel!

  WHO = "run lambda { |env| [200, {}, [env.select { |k, _| k =~ /REMOTE_USER|PLAN/ }.sort.inspect]] }"

  def setup
    mruby_only
  end

  # A server whose handlers run in the order of `files`.
  def handlers(files, app: nil, toml: "", **options)
    toml = "#{toml}\n[routes]\n\"/\" = #{files.keys.inspect}\n"
    start(app: app, files: files, settings: toml, workers: app && 1, threads: app && "1:1", **options)
  end

  def fields(response, *names)
    names.map { |name| response[name] }
  end

  def statuses(count, path = "/", to:, headers: {})
    Array.new(count) { get(path, to: to, headers: headers).status }
  end

  it "passes variables of an earlier handler on to later ones and the app" do
    own = handlers({ "a.rb" => 'lambda { |env| [399, { "X-Fallthru-Set-Remote-User" => "ann", "x-fallthru-set-the-plan" => "gold", "x-seen" => "1" }, []] }',
                     "b.rb" => 'lambda { |env| [399, { "x-user" => env["REMOTE_USER"], "x-fallthru-set-the-plan" => env["THE_PLAN"].upcase }, []] }' },
                   app: WHO, toml: "[log]\naccess = \"access.log\"")
    response = get("/", to: own)
    assert_equal '[["REMOTE_USER", "ann"], ["THE_PLAN", "GOLD"]]', response.body
    assert_equal %w[ann 1], [response["x-user"], response["x-seen"]]
    refute response["x-fallthru-set-remote-user"]
    wait_until("the line") { File.exist?(own.path("access.log")) && !File.empty?(own.path("access.log")) }
    assert_includes File.read(own.path("access.log")), " - ann ["
  end

  it "does not let clients set variables" do
    own = handlers({ "a.rb" => "lambda { |env| [399, { 'x-user' => env['REMOTE_USER'].inspect }, []] }" }, app: WHO)
    forged = { "X-Fallthru-Set-Remote-User" => "root", "Remote-User" => "root", "Firebrick-Env-Remote-User" => "root" }
    response = get("/", to: own, headers: forged)
    assert_equal "nil", response["x-user"]
    assert_equal '[["HTTP_FIREBRICK_ENV_REMOTE_USER", "root"], ["HTTP_REMOTE_USER", "root"], ' \
                 '["HTTP_X_FALLTHRU_SET_REMOTE_USER", "root"]]', response.body
    assert_status 400, get("/", to: own, headers: { "=REMOTE_USER" => "root" })
  end

  it "refuses an invalid variable name" do
    own = handlers({ "a.rb" => 'lambda { |env| [399, { "x-fallthru-set-a b" => "1" }, []] }' })
    assert_status 500, get("/", to: own)
    assert_logged 'a field named "x-fallthru-set-a b"', on: own
  end

  it "counts for all front threads together, also after a reload" do
    limit = 'RateLimit.new(limit: 10, period: 3600, name: "all")'
    own = handlers({ "limit.rb" => limit, "ok.rb" => 'lambda { |env| [200, {}, ["ok"]] }' }, args: ["--front-threads", "4"])
    clients = Array.new(10) { Thread.new { statuses(4, to: own) } }
    assert_equal({ 200 => 10, 429 => 30 }, clients.flat_map(&:value).tally)
    refused = get("/", to: own)
    assert_equal %w[10 0 10;w=3600], fields(refused, "ratelimit-limit", "ratelimit-remaining", "ratelimit-policy")
    assert_operator refused["retry-after"].to_i, :>, 0

    File.write(own.path("limit.rb"), "# changed\n#{limit}")
    wait_until("the reload") { own.stderr.include?("read again") }
    assert_status 429, get("/", to: own)
  end

  it "refuses to start with rules that are never used" do
    own = Server.new(files: { "h.rb" => "acl { deny }\nlambda { |env| [200, {}, []] }" }, workers: nil, threads: nil)
    out, err, status = own.command_line("check", "h.rb", "--mruby")
    own.finish
    assert_equal 1, status, out
    assert_includes err, "the acl is ignored"
  end
end
