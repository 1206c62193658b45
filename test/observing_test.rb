# frozen_string_literal: true

# The files in deploy/ for Prometheus, Grafana and logrotate, with the real programs where they are installed.

require "json"
require "net/http"
require "socket"
require "support/case"
require "yaml"
require "zlib"

class ObservingTest < Case
  parallel!

  DEPLOY = File.join(Server::ROOT, "deploy")
  ALERTS = File.join(DEPLOY, "prometheus/alerts.yml")
  DASHBOARD = File.join(DEPLOY, "grafana/firebrick.json")
  # Prometheus makes these itself.
  OTHERS = %w[up time].freeze

  def setup
    firebrick_only
  end

  def program(name)
    found = [*ENV["PATH"].split(":"), "/usr/sbin"].map { |dir| File.join(dir, name) }.find { |path| File.executable?(path) }
    found || skip("#{name} is not installed")
  end

  def succeeds(*words, **options)
    out, status = Open3.capture2e(*words, **options)
    assert_predicate status, :success?, out
    out
  end

  def alerts = YAML.load_file(ALERTS).dig("groups", 0, "rules")

  # The expressions of the dashboard, with its variables replaced.
  def expressions
    panels = JSON.parse(File.read(DASHBOARD)).fetch("panels")
    panels.flat_map { |panel| panel.fetch("targets", []) }.map { |target| target.fetch("expr").gsub("$__rate_interval", "1m").gsub("$instance", ".*") }
  end

  it "uses metrics and labels that exist" do
    table = File.read(File.join(Server::ROOT, "docs/metrics.md"))
    texts = alerts.map { |rule| rule["expr"] } + expressions
    names = texts.flat_map { |text| text.scan(/\bfirebrick_[a-z0-9_]+/) }.map { |name| name.delete_suffix("_bucket") }.uniq
    assert_operator names.size, :>, 25
    names.each { |name| assert_match(/^\| `#{name}` \|/, table) }
    causes = File.read(File.join(Server::ROOT, "docs/stats.md"))
    words = texts.join.scan(/(?:cause|outcome)=~"([a-z_|]+)"/).flatten.flat_map { |list| list.split("|") }
    assert_operator words.size, :>=, 10
    words.each { |word| assert_match(/^\| `#{word}` \|/, causes) }
  end

  it "gives each alert a severity, a summary and a next step" do
    alerts.each do |rule|
      assert_includes %w[warning critical], rule.dig("labels", "severity"), rule["alert"]
      %w[summary description].each { |part| refute_empty rule.dig("annotations", part).to_s, rule["alert"] }
    end
    assert_equal alerts.size, alerts.map { |rule| rule["alert"] }.uniq.size
  end

  it "passes promtool's check, and the tests of the alerts" do
    promtool = program("promtool")
    assert_match(/SUCCESS: #{alerts.size} rules found/, succeeds(promtool, "check", "rules", ALERTS))
    succeeds(promtool, "test", "rules", "alerts_test.yml", chdir: File.dirname(ALERTS))
    Dir.mktmpdir do |dir|
      rules = expressions.map.with_index { |expr, at| { "record" => "panel:#{at}", "expr" => expr } }
      File.write(File.join(dir, "panels.yml"), YAML.dump("groups" => [{ "name" => "panels", "rules" => rules }]))
      succeeds(promtool, "check", "rules", File.join(dir, "panels.yml"))
    end
  end

  it "is scraped by Prometheus, whose panels then have values" do
    prometheus = program("prometheus")
    own = start(app: "run ->(env) { [200, {}, [\"hello\"]] }", workers: 1, args: ["--control", "tcp://127.0.0.1:0"], env: { "FIREBRICK_CONTROL_TOKEN" => "0123456789abcdef" })
    target = own.stdout[%r{^\* Control on tcp://(127\.0\.0\.1:\d+)$}, 1] or flunk "no control port in:\n#{own.stdout}"
    get("/", to: own)
    port = TCPServer.open("127.0.0.1", 0) { |free| free.local_address.ip_port }
    Dir.mktmpdir do |dir|
      scrape = { "job_name" => "firebrick", "authorization" => { "credentials" => "0123456789abcdef" }, "static_configs" => [{ "targets" => [target] }] }
      File.write(File.join(dir, "prometheus.yml"), YAML.dump("global" => { "scrape_interval" => "1s", "evaluation_interval" => "1s" }, "rule_files" => [ALERTS], "scrape_configs" => [scrape]))
      pid = spawn(prometheus, "--config.file=prometheus.yml", "--storage.tsdb.path=data", "--web.listen-address=127.0.0.1:#{port}", chdir: dir, %i[out err] => File::NULL)
      wait_until("a scrape") { answer(port, "firebrick_ready") == ["1"] rescue false }
      get("/", to: own)
      expressions.grep(/saturation|state="ready"|memory_pss/).each { |expr| refute_empty answer(port, expr), expr }
      assert_equal alerts.size, JSON.parse(Net::HTTP.get(URI("http://127.0.0.1:#{port}/api/v1/rules"))).dig("data", "groups", 0, "rules").size
    ensure
      Process.kill(:TERM, pid) && Process.wait(pid) if pid
    end
  end

  # The values of a query.
  def answer(port, expression)
    found = JSON.parse(Net::HTTP.get(URI("http://127.0.0.1:#{port}/api/v1/query?#{URI.encode_www_form(query: expression)}")))
    found.fetch("data").fetch("result").map { |one| one.dig("value", 1) }
  end

  it "loses no line when logrotate rotates the logs" do
    logrotate = program("logrotate")
    own = start(app: "run ->(env) { [200, {}, [env[\"PATH_INFO\"]]] }", workers: 1, files: { "log/.keep" => "" }, settings: { log: { access: "log/access.log", error: "log/error.log" } }, leaves: %w[log])
    config = File.read(File.join(DEPLOY, "firebrick.logrotate")).gsub("/srv/app", own.dir).sub(/systemctl kill.*/, "kill -HUP #{own.pid}")
    path = own.path("log/access.log")
    File.write(own.path("log/rotate.conf"), config)
    File.chmod(0o644, own.path("log/rotate.conf"))
    rotations = 3
    paths = (0...(rotations * 20)).map do |number|
      assert_status 200, get("/#{number}", to: own)
      if number % 20 == 10
        # An empty log is not rotated.
        wait_until("the first lines") { File.size?(path) }
        succeeds(logrotate, "--force", "--state", own.path("log/state"), own.path("log/rotate.conf"))
      end
      "/#{number}"
    end
    all = -> { Dir["#{path}*"].sum("") { |file| file.end_with?(".gz") ? Zlib::GzipReader.open(file, &:read) : File.read(file) } }
    wait_until("all lines") { paths.all? { |one| all.call.include?("GET #{one} HTTP") } }
    assert_equal paths.size, all.call.scan(%r{GET /\d+ HTTP}).size
    assert_equal %w[access.log access.log.1 access.log.2.gz access.log.3.gz], Dir["#{path}*"].map { |file| File.basename(file) }.sort
  end
end
