# frozen_string_literal: true

# `reload.warm`: the template of a new release repeats recent requests before it forks workers.

require "support/http2_client"
require "support/rails_app"
require "support/reloading"
require "support/tls_case"
require "support/upgrading"
require "support/visitor"

class WarmUpTest < TlsCase
  parallel! slow: true

  include Reloading

  # Writes each warm-up request down, with what of a client might be in it.
  APP = <<~'RUBY'
    text = { "content-type" => "text/plain" }
    run lambda { |env|
      if env["firebrick.warmup"]
        File.open(File.join(__dir__, "warm.log"), "a") do |log|
          log.puts [Process.pid, env["HTTP_FIREBRICK_WARMUP"], env["PATH_INFO"], env["QUERY_STRING"], env["HTTP_HOST"],
                    env["HTTP_ACCEPT_LANGUAGE"], env["HTTP_COOKIE"], env["HTTP_AUTHORIZATION"], env["HTTP_X_FORWARDED_FOR"]].join("|")
        end
      end
      case env["PATH_INFO"]
      when "/crash" then Process.kill(:SEGV, Process.pid) if env["firebrick.warmup"]
      when "/exit" then exit!(3) if env["firebrick.warmup"]
      when "/hang" then env["firebrick.warmup"] && sleep(30)
      when "/raise" then raise "no" if env["firebrick.warmup"]
      when "/fails" then return [500, text, ["no"]] if env["firebrick.warmup"]
      when "/thread" then $thread ||= Thread.new { sleep }
      when "/connect" then $socket ||= TCPSocket.new("127.0.0.1", Integer(File.read(File.join(__dir__, "port"))))
      end
      $seen = $seen.to_i + 1
      [200, text, ["#{$seen}"]]
    }
  RUBY

  def launch(app: APP, warm_paths: ["/"], **options)
    settings = { reload: { warm_paths: warm_paths }.compact.merge(options.delete(:reload).to_h) }
    launch_app(app: app, settings: settings.merge(options.delete(:settings).to_h), args: ["-e", "production", *options.delete(:args)], **options)
  end

  # The warm-up requests: [pid, mark, path, query, host, language, cookie, authorization, forwarded].
  def warm_ups(own)
    File.readlines(own.path("warm.log"), chomp: true).map { |line| line.split("|", -1) }
  rescue Errno::ENOENT
    []
  end

  { "threads" => {}, "fibers" => { fibers: 4 }, "the worker in plain Ruby" => { env: { "FIREBRICK_PURE" => "1" } } }.each do |mode, options|
    it "repeats each route before the fork, and once in each worker, with #{mode}" do
      firebrick_only
      own = launch(workers: 2, **options)
      secret = { "Cookie" => "session=1", "Authorization" => "Basic x", "X-Forwarded-For" => "192.0.2.9" }
      get("/posts/1?page=2", to: own, headers: { "Accept-Language" => "de" })
      get("/other", to: own, headers: secret)
      get("/reset?token=secret", to: own)
      post("/posts/1", "body", to: own)
      out = assert_reloads(own)
      assert_match(/^booting: the app is loaded .*\nbooting: repeating recent requests for at most 5 s\nbooting: warmed by \d+ requests for 2 routes/, out)
      requests = warm_ups(own)
      assert_equal [["/other", ""], ["/posts/1", "page=2"]], requests.map { |request| request[2, 2] }.uniq.sort
      assert_equal ["1"], requests.map { |request| request[1] }.uniq
      assert_equal [["", "", ""]], requests.map { |request| request[6, 3] }.uniq, "something of a client"
      assert_equal [["/other", ""], ["/posts/1", "de"]], requests.map { |request| [request[2], request[5]] }.uniq.sort
      by_process = requests.group_by(&:first).transform_values(&:size)
      # The process that tries them, the template, and both workers.
      assert_equal 4, by_process.size
      assert_equal([2, 2, 2], by_process.values.min(3))
      # The workers share what the template has done: each has its own two more, and this one.
      assert_operator Integer(get("/counted", to: own).body), :>, by_process.values.max
    end
  end

  it "keeps requests of HTTP/2 clients as well" do
    firebrick_only
    own = launch(workers: 1, binds: ["tcp://127.0.0.1:0?h2c=true"])
    client = Http2Client.new(own.address)
    assert_equal 200, client.get("/from/http2").status
    client.close
    assert_match(/for 1 routes/, assert_reloads(own))
    assert_equal ["/from/http2"], warm_ups(own).map { |request| request[2] }.uniq
  end

  it "keeps requests of HTTP/3 clients as well" do
    own = launch(workers: 1, files: pair("own", "127.0.0.1"), binds: ["ssl://127.0.0.1:0?cert=own.pem&key=own.key"])
    out, err, code = own.command_line("bench", "https://127.0.0.1:#{own.port}/from/http3", *%w[-k --http 3 -c 1 -n 3])
    assert_equal 0, code, -> { out + err }
    assert_match(/for 1 routes/, assert_reloads(own))
    assert_equal ["/from/http3"], warm_ups(own).map { |request| request[2] }.uniq
  end

  it "leaves out requests that fail, and names them" do
    firebrick_only
    own = launch(workers: 1)
    %w[/good /raise /fails].each { |path| get(path, to: own) }
    out = assert_reloads(own)
    assert_match(%r{for 1 routes .*; left out: .*GET /raise: RuntimeError}, out)
    assert_match(%r{GET /fails: status 500}, out)
    tried = warm_ups(own).first[0]
    assert_equal(%w[/good], warm_ups(own).reject { |request| request[0] == tried }.map { |request| request[2] }.uniq)
  end

  it "leaves out a request that takes too long" do
    firebrick_only
    own = launch(workers: 1, reload: { warm: "8s" })
    %w[/good /hang].each { |path| get(path, to: own) }
    out = nil
    took = elapsed { out = assert_reloads(own) }
    assert_match(%r{for 1 routes .*; left out: GET /hang: more than 2 s}, out)
    assert_operator took, :<, 25
  end

  # path => why nothing is repeated
  # Ruby's own report of a crash may take longer than the time for it.
  { "/crash" => /the process that tried GET .crash was killed by SIG(SEGV|ABRT)|GET .crash did not end/,
    "/exit" => %r{GET /exit did not end},
    "/thread" => /a thread runs on: #<Thread/,
    "/connect" => /a connection to 127.0.0.1:\d+ stays open/ }.each do |path, why|
    it "repeats nothing if a request would harm the workers: #{path}" do
      firebrick_only
      listener = TCPServer.new("127.0.0.1", 0)
      own = launch(workers: 1, files: { "port" => listener.local_address.ip_port.to_s })
      ["/good", path].each { |one| get(one, to: own) }
      out = assert_reloads(own)
      assert_match(/^booting: no requests are repeated before the fork: /, out)
      assert_match why, out
      assert_equal 1, warm_ups(own).map { |request| request[0] }.uniq.size, "only the process that tries"
      assert_status 200, get("/good", to: own)
    ensure
      listener&.close
    end
  end

  it "repeats nothing of an app whose writes nothing prevents, unless its paths are named" do
    firebrick_only
    own = launch(workers: 1, warm_paths: nil)
    %w[/a/1 /b].each { |path| get(path, to: own) }
    assert_match(/no requests are repeated before the fork, because nothing keeps this app from writing/, assert_reloads(own))
    assert_empty warm_ups(own)
    out, = own.command_line("set", "reload.warm_paths=/a", "--dir", own.dir)
    assert_match(/reload.warm_paths/, out)
    assert_match(/for 1 routes/, assert_reloads(own))
    assert_equal ["/a/1"], warm_ups(own).map { |request| request[2] }.uniq
  end

  it "repeats nothing with reload.warm = 0, in development, and after a failed boot" do
    firebrick_only
    [launch(workers: 1, reload: { warm: 0 }), launch_app(app: APP, workers: 1, settings: { reload: { warm_paths: ["/"] } }, args: ["-e", "development"])].each do |own|
      get("/a", to: own)
      refute_match(/warm/, assert_reloads(own))
      assert_empty warm_ups(own)
    end
  end

  it "takes no longer than its limit" do
    firebrick_only
    own = launch(workers: 1, app: APP.sub("$seen =", "sleep 0.3 if env['firebrick.warmup']\n  $seen ="), reload: { warm: "1s" })
    30.times { |number| get("/route#{('a'.ord + (number % 26)).chr}#{'x' * (number / 26)}", to: own) }
    out = assert_reloads(own)
    assert_match(/warmed by \d+ requests for [12] routes/, out)
  end

  # A request takes a quarter of a second, so thirty rounds take longer than the usual 5 s.
  SLOW = APP.sub("$seen =", "sleep 0.25 if env['firebrick.warmup']\n  $seen =")

  it "takes more time for an app that YJIT compiles, if no worker is missing meanwhile" do
    firebrick_only
    skip "this Ruby has no YJIT" unless system(ENV.fetch("RUBY", "ruby"), "--yjit", "-e", "exit defined?(RubyVM::YJIT) ? 0 : 1", err: File::NULL)
    own = launch(workers: 2, app: SLOW, args: ["--yjit", "on"])
    get("/a", to: own)
    requests = ->(out) { Integer(out[/warmed by (\d+) requests/, 1], 10) }
    assert_operator requests[assert_reloads(own)], :>=, 30
    assert_operator requests[assert_reloads(own, "--in-place")], :<, 30
    plain = launch(workers: 1, app: SLOW, args: ["--yjit", "off"])
    get("/a", to: plain)
    assert_operator requests[assert_reloads(plain)], :<, 30
  end

  it "ends before the time for loading the app does, and is left out if that is over" do
    firebrick_only
    own = launch(workers: 1, app: SLOW, reload: { warm: "1h" }, settings: { timeouts: { worker_boot: "15s" } })
    5.times { |number| get("/route#{('a'.ord + number).chr}", to: own) }
    assert_match(/warmed by \d+ requests for \d routes \((?:[1-9]|1[01])\.\d s\)/, assert_reloads(own))
    File.write(own.path("config.ru"), "sleep 12.2\n#{SLOW}")
    assert_match(/no requests are repeated before the fork, because loading the app has taken most of timeouts\.worker_boot/, assert_reloads(own))
  end

  it "warms an in-place reload and the template that replaces a dead one" do
    firebrick_only
    own = launch(workers: 1)
    get("/a", to: own)
    assert_match(/warmed by/, assert_reloads(own, "--in-place"))
    before = warm_ups(own).size
    Process.kill(:KILL, templates(own).first.pid)
    wait_until("another template", within: 30) { own.stderr.include?("a new template has loaded the app; warmed by") }
    assert_operator warm_ups(own).size, :>, before
  end

  # --- Rails

  WRITING = {
    "app/controllers/visits_controller.rb" => <<~RUBY,
      class VisitsController < ApplicationController
        def index
          Entry.create!(text: request.env["firebrick.warmup"].inspect)
          render plain: Entry.count
        end

        # Behind a login, as docs/reload.md shows it.
        def account
          return head(:unauthorized) unless current_user

          logger.info("the account of \#{current_user}")
          render plain: current_user
        end

        private

        def current_user = cookies[:user] || ("warm-up" if request.env.key?("firebrick.warmup"))
      end
    RUBY
    "config/initializers/visits.rb" => 'Rails.application.routes.append { get "visits" => "visits#index"; get "account" => "visits#account" }'
  }.freeze

  it "prevents writes in a Rails app, marks the lines that it logs, and shares the rest" do
    firebrick_only
    rails_only
    own = start(**RailsApp.options(workers: 1, threads: "1:3", files: WRITING, env: { "RAILS_ENV" => "production", "RAILS_LOG_LEVEL" => "info" },
                                   args: ["-e", "production"], settings: { reload: { watch: "0s", warm: "30s" } }))
    visitor = Visitor.new(self, own)
    visitor.post("/form", { authenticity_token: visitor.token("/form"), text: "a" })
    paths = %w[/form /entries /echo /cookies/show]
    paths.each { |path| assert_status 200, get(path, to: own) }
    assert_equal "1", get("/visits", to: own).body
    assert_equal "ada", get("/account", to: own, headers: { "Cookie" => "user=ada" }).body
    logged = own.stdout.bytesize
    out = assert_reloads(own)
    assert_match(/warmed by \d+ requests for \d+ routes .*left out: visits#index: it writes/, out)
    started = own.stdout.byteslice(logged..).lines.grep(/Started GET/)
    assert_operator started.size, :>, 12
    # The probe of the reload is a request of its own.
    unmarked = started.reject { |line| line.include?("[warm-up]") }
    assert_equal(["/up"], unmarked.map { |line| line[/"(.*)"/, 1] })
    accounts = own.stdout.byteslice(logged..).lines.grep(/the account of/)
    refute_empty accounts
    assert_empty accounts.grep_v(/\[warm-up\].*the account of warm-up$/)
    assert_status 401, get("/account", to: own, headers: { "firebrick.warmup" => "1", "Firebrick-Warmup" => "1" })
    paths.each { |path| assert_status 200, get(path, to: own) }
    assert_equal "2", get("/visits", to: own).body, "a warm-up request has written"
    assert_match(/a/, visitor.get("/notice").body)
  end
end

class WarmUpgradeTest < Case
  parallel! slow: true

  include Upgrading

  it "repeats the recent requests of the program before an upgrade, also after a second one" do
    firebrick_only
    own = launch(app: WarmUpTest::APP, workers: 1, settings: { reload: { warm_paths: ["/"] } }, args: ["-e", "production"])
    get("/posts/1?page=2", to: own, headers: { "Accept-Language" => "de" })
    get("/other", to: own, headers: { "Cookie" => "session=1" })
    2.times do
      FileUtils.rm_f(own.path("warm.log"))
      assert_upgrades(own)
      requests = File.readlines(own.path("warm.log"), chomp: true).map { |line| line.split("|", -1) }
      assert_equal [["/other", "", "", ""], ["/posts/1", "page=2", "de", ""]], requests.map { |request| request.values_at(2, 3, 5, 6) }.uniq.sort
      assert_match(/^.*the app is loaded; warmed by \d+ requests for 2 routes/, own.stderr)
    end
    FileUtils.rm_f(own.path("warm.log"))
    assert_reloads(own)
    refute_empty File.readlines(own.path("warm.log")), "a reload after an upgrade"
  end
end
