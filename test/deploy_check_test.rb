# frozen_string_literal: true

# `firebrick deploy-check`: each fault is planted, and the finding names it with a figure and the line to paste.

require "json"
require "openssl"
require "socket"
require "support/case"
require "support/rails_app"

class DeployCheckTest < Case
  parallel!

  APP = 'File.write("loaded", ""); run ->(_) { [200, {}, []] }'
  CLEAN = %w[PORT WEB_CONCURRENCY RAILS_MAX_THREADS RAILS_MIN_THREADS APP_ENV RACK_ENV RAILS_ENV DYNO KUBERNETES_SERVICE_HOST K_SERVICE
             FLY_APP_NAME RENDER DATABASE_URL SECRET_KEY_BASE RAILS_MASTER_KEY MALLOC_ARENA_MAX TMPDIR NO_COLOR].to_h { |name| [name, nil] }.freeze
  RAILS = { "config/application.rb" => "", "config/environment.rb" => "" }.freeze

  def setup
    firebrick_only
    @folder = File.realpath(Dir.mktmpdir("firebrick-deploy-check"))
    write("config.ru" => APP)
  end

  def teardown
    FileUtils.remove_entry(@folder) if @folder
  end

  def write(files)
    files.each do |name, content|
      path = File.join(@folder, name)
      FileUtils.mkdir_p(File.dirname(path))
      File.write(path, content)
    end
  end

  # Runs the command in production, on a port that is free. Returns its output, its errors and its exit code.
  def firebrick(*args, env: {}, dir: @folder, port: %w[-p 0], **options)
    env = { **CLEAN, "RACK_ENV" => "production", "XDG_RUNTIME_DIR" => @folder, **Server.ruby_files, **env }
    out, err, status = Open3.capture3(env, Server.binary, "deploy-check", *port, *args, chdir: dir, **options)
    refute_match(/panicked/, err)
    [out, err, status.exitstatus]
  end

  # Returns the findings that are not about the machine on which the tests run, and the exit code.
  def findings(*args, **options)
    out, err, code = firebrick("--json", "--offline", *args, **options)
    refute_empty out, err
    [JSON.parse(out).fetch("findings"), code]
  end

  # The question has such a finding, whose text and lines to paste have these parts.
  def assert_light(light, question, *parts, args: [], **options)
    all, code = findings(*args, **options)
    own = all.select { |one| one["question"] == question }
    found = own.find { |one| one["light"] == light && parts.all? { |part| [one["text"], *one["paste"].map { |line| line["text"] }].join("\n").match?(part) } }
    assert found, "#{light} #{question} #{parts}\n#{JSON.pretty_generate(own)}"
    refute_empty found["figures"]
    refute_empty found["paste"] unless light == "green"
    assert_equal 1, code if light == "red"
    found
  end

  it "is green for an app without faults, and leaves nothing behind" do
    sinatra = File.join(Server::ROOT, "examples/sinatra")
    before = Dir.glob("**/*", File::FNM_DOTMATCH, base: sinatra)
    out, err, code = firebrick(dir: sinatra)
    assert_equal [0, ""], [code, err], out
    assert_match(/^\d+ green, 0 yellow, 0 red$/, out)
    refute_match(/^(yellow|red)|\e/, out)
    assert_equal before, Dir.glob("**/*", File::FNM_DOTMATCH, base: sinatra)
  end

  it "is green for a Rails app without faults" do
    rails_only
    write(**RailsApp.files, "public/assets/.sprockets-manifest-1.json" => "{}", "public/assets/.manifest.json" => "{}")
    env = { **RailsApp::ENVIRONMENT, "RAILS_ENV" => "production", "RACK_ENV" => nil, "PORT" => "0", "BUNDLE_GEMFILE" => nil }
    out, err, code = firebrick("--offline", env: env, port: [])
    assert_equal 0, code, out + err
    assert_match(/^\d+ green, 0 yellow, 0 red$/, out)
    assert_match(/^green +database +primary \(sqlite3\): 16 connections/, out)
  end

  it "does not load the app" do
    firebrick
    refute_path_exists File.join(@folder, "loaded")
    assert_equal ["config.ru"], Dir.children(@folder)
  end

  it "judges production if no environment is set, and says so" do
    assert_light("yellow", "environment", /none is set/, /RACK_ENV=production/, env: { "RACK_ENV" => nil })
    _, _, code = firebrick("--offline", env: { "RACK_ENV" => nil })
    assert_equal 0, code
    _, _, code = firebrick("--offline", "--strict", env: { "RACK_ENV" => nil })
    assert_equal 1, code
    assert_light("red", "environment", /development \(RACK_ENV\)/, env: { "RACK_ENV" => "development" })
    assert_light("yellow", "environment", /RAILS_ENV is staging/, env: { "RAILS_ENV" => "staging" })
    write("config/puma.rb" => 'environment ENV.fetch("RAILS_ENV") { "development" }')
    assert_light("yellow", "environment", /none is set/, env: { "RACK_ENV" => nil })
    write("config/puma.rb" => 'environment "production"')
    assert_light("green", "environment", %r{production \(config/puma.rb:1\)}, env: { "RACK_ENV" => nil })
  end

  it "misses secrets of Rails, and prints none" do
    write(RAILS)
    assert_light("red", "secrets", /SECRET_KEY_BASE is not set/, %r{bin/rails secret})
    assert_light("green", "secrets", /SECRET_KEY_BASE/, env: { "SECRET_KEY_BASE" => "geheim" * 10 })
    write("config/credentials.yml.enc" => "x")
    assert_light("red", "secrets", /neither RAILS_MASTER_KEY nor a key file/, /RAILS_MASTER_KEY=/)
    short = assert_light("red", "secrets", /9 characters/, env: { "RAILS_MASTER_KEY" => "abcdef123" })
    refute_match(/abcdef123/, short.to_s)
    write("config/master.key" => "0123456789abcdef0123456789abcdef")
    File.chmod(0o644, File.join(@folder, "config/master.key"))
    assert_light("yellow", "secrets", /chmod 600/)
    File.chmod(0o600, File.join(@folder, "config/master.key"))
    assert_light("green", "secrets", %r{config/master.key})
    refute_includes firebrick.join, "0123456789abcdef"
  end

  it "compares pools of config/database.yml with threads" do
    write("config/database.yml" => <<~YAML)
      production:
        adapter: postgresql
        password: <%= Rails.application.credentials.password %>
        pool: <%= ENV.fetch("POOL") { 2 } %>
    YAML
    assert_light("red", "database", %r{2 connections \(config/database.yml\) for 5 threads}, /pool: 5/, env: { "RAILS_MAX_THREADS" => "5" })
    assert_light("green", "database", /5 connections/, env: { "RAILS_MAX_THREADS" => "5", "POOL" => "5" })
    assert_light("yellow", "database", /30 fibers/, args: %w[--fibers 10], env: { "POOL" => "5" })
    found = assert_light("red", "database", /2 connections \(DATABASE_URL\)/, /DATABASE_URL=/, env: { "POOL" => "5", "DATABASE_URL" => "postgres://u:geheim@h/db?pool=2" })
    refute_includes found.to_s, "geheim"
    bad = assert_light("red", "database", /not valid/, env: { "DATABASE_URL" => "postgres://u:ge heim@h/db" })
    refute_match(/ge.heim/, bad.to_s)
    assert_light("red", "database", /4 workers x 3 connections are 12, and the database accepts 11/, args: %w[-w 4 --database-connections 11], env: { "POOL" => "5" })
    assert_light("yellow", "database", /15 while a worker is replaced/, args: %w[-w 4 --database-connections 12], env: { "POOL" => "5" })
  end

  it "reads a config/database.yml that needs the app, fails, prints or has several databases" do
    write("config/database.yml" => "<% puts 'hello' %>production:\n  pool: <%= Rails.application.config.x.pool %>\n")
    assert_light("green", "database", /only the app knows/)
    write("config/database.yml" => "production:\n  pool: <%= Blog::POOL %>\n")
    assert_light("green", "database", /only the app knows/)
    write("config/database.yml" => "production:\n  pool: <%= ENV.fetch('NOT_SET') %>\n")
    assert_light("red", "database", /KeyError.*NOT_SET/)
    write("config/database.yml" => "production:\n  primary: { adapter: x, pool: 9 }\n  queue: { adapter: y, max_connections: 1 }\n")
    assert_light("green", "database", /primary \(x\): 9/)
    assert_light("red", "database", /queue \(y\): 1 connection /)
  end

  it "ends although config/database.yml does not" do
    write("config/database.yml" => "<% sleep %>")
    began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    assert_light("red", "ruby", /no answer within 10 s/)
    assert_operator Process.clock_gettime(Process::CLOCK_MONOTONIC) - began, :<, 60
  end

  it "compares workers with memory and CPUs" do
    assert_light("red", "memory", /64 workers of 1 TiB need 64 TiB/, /workers = \d+/, args: %w[-w 64 --worker-memory 1TiB])
    assert_light("yellow", "CPUs", /1,000 workers/, /workers = \d+/, args: %w[-w 1000])
    assert_light("yellow", "allocator", /MALLOC_ARENA_MAX is 32/, /MALLOC_ARENA_MAX=2/, env: { "MALLOC_ARENA_MAX" => "32" })
  end

  it "counts descriptors" do
    assert_light("yellow", "descriptors", /of 10,000 connections/, /LimitNOFILE=16384/, rlimit_nofile: [1500, 2000])
    assert_light("red", "descriptors", /of 10,000 connections/, /ulimit -Hn/, rlimit_nofile: [200, 200])
  end

  it "looks at the folder for temporary files" do
    assert_light("red", "temporary files", /nosuch/, /TMPDIR=/, env: { "TMPDIR" => "#{@folder}/nosuch" })
    assert_light("yellow", "temporary files", /in memory/, env: { "TMPDIR" => "/dev/shm" }) if File.directory?("/dev/shm")
    assert_light("yellow", "temporary files", /free, less than one body of 1 PiB \(limits.max_body\)/, /max_body = /, args: %w[--max-body 1024TiB])
  end

  it "names the process that has the port, and a PORT that is not served" do
    TCPServer.open("127.0.0.1", 0) do |other|
      port = other.local_address.ip_port.to_s
      assert_light("red", "addresses", /in use by process #{Process.pid}/, port: ["-b", "tcp://127.0.0.1:#{port}"])
    end
    served = ["-b", "tcp://[::]:0"]
    assert_light("red", "addresses", /PORT is 5000.*DYNO/, /\$PORT/, port: served, env: { "PORT" => "5000", "DYNO" => "web.1" })
    assert_light("yellow", "addresses", /PORT is 5000/, port: served, env: { "PORT" => "5000" })
    assert_light("red", "addresses", /from another machine/, port: ["-b", "tcp://127.0.0.1:0"], env: { "KUBERNETES_SERVICE_HOST" => "10.0.0.1" })
  end

  it "compares time-outs with Heroku's, and its lines are the remedy" do
    heroku = { "DYNO" => "web.1" }
    lines = assert_light("red", "time-outs", /keep-alive.*1 min 30 s/, env: heroku)["paste"]
    lines += assert_light("yellow", "time-outs", /gives up after 30 s/, env: heroku)["paste"]
    lines += assert_light("yellow", "shutdown", /KILL comes after 30 s \(Heroku\)/, env: heroku)["paste"]
    assert_equal ["firebrick.toml, above the first [section]"], lines.map { |line| line["place"] }.uniq
    write("firebrick.toml" => lines.map { |line| "#{line['text']}\n" }.join)
    assert_light("green", "time-outs", /they suit Heroku/, env: heroku)
    assert_light("green", "shutdown", /Heroku/, env: heroku)
    write("firebrick.toml" => "[timeouts]\nworker = 25\n")
    assert_includes assert_light("red", "time-outs", /keep-alive/, env: heroku)["paste"], { "place" => "firebrick.toml, below [timeouts]", "text" => 'keep_alive = "95s"' }
    File.delete(File.join(@folder, "firebrick.toml"))
    write("config/puma.rb" => "workers 2")
    assert_light("red", "time-outs", /firebrick --keep-alive-timeout 95s/, env: heroku)
  end

  it "compares time-outs with those of other proxies, and the end with --grace" do
    assert_light("yellow", "time-outs", /proxy_read_timeout 65s;/, args: %w[--behind nginx])
    assert_light("red", "time-outs", /keep_alive = "65s"/, args: %w[--behind alb --keep-alive-timeout 20])
    assert_light("yellow", "time-outs", /keep_alive = "905s"/, args: %w[--behind cloudflare])
    assert_light("yellow", "shutdown", /terminationGracePeriodSeconds: \d+/, args: %w[--behind kubernetes])
    assert_light("yellow", "shutdown", /KILL comes after 10 s/, args: %w[--grace 10s])
    assert_light("green", "shutdown", /KILL comes after 40 s/, args: %w[--grace 40s])
  end

  it "says that a proxy is not trusted" do
    assert_light("red", "proxy", /not trusted/, args: %w[--behind nginx --trusted-proxies none])
    assert_light("red", "proxy", /Unix socket/, /unix/, port: %w[-b unix://s.sock], args: %w[--trusted-proxies 127.0.0.1])
    assert_light("red", "proxy", /redirects for ever/, args: %w[--behind alb --trusted-proxies none --https-only])
    assert_light("yellow", "proxy", /cloudflare.com/, args: %w[--behind cloudflare])
    assert_light("green", "proxy", /trusted/, args: %w[--behind nginx])
  end

  it "asks this machine's nginx whether it passes early hints" do
    nginx = lambda do |version|
      write("bin/nginx" => "#!/bin/sh\necho nginx version: nginx/#{version} >&2\n")
      File.chmod(0o755, File.join(@folder, "bin/nginx"))
      { args: %w[--behind nginx --early-hints], env: { "PATH" => "#{@folder}/bin:#{ENV.fetch('PATH')}" } }
    end
    assert_light("red", "early hints", /nginx 1.22.1 waits for ever/, /early_hints = false/, **nginx["1.22.1"])
    assert_light("green", "early hints", /nginx 1.29.0/, **nginx["1.29.0"])
    assert_light("yellow", "early hints", /Heroku/, args: %w[--behind heroku --early-hints])
  end

  # Writes a certificate for a name that is valid for some days.
  def certificate(name, days)
    key = OpenSSL::PKey::EC.generate("prime256v1")
    cert = OpenSSL::X509::Certificate.new
    cert.version = 2
    cert.serial = 1
    cert.subject = cert.issuer = OpenSSL::X509::Name.parse("/CN=#{name}")
    cert.not_before = Time.now - (200 * 86_400)
    cert.not_after = Time.now + (days * 86_400)
    cert.public_key = key
    cert.add_extension(OpenSSL::X509::ExtensionFactory.new.create_extension("subjectAltName", "DNS:#{name}"))
    cert.sign(key, "SHA256")
    write("cert.pem" => cert.to_pem, "key.pem" => key.to_pem)
    ["--tls-cert", "cert.pem", "--tls-key", "key.pem", "-b", "ssl://[::]:0"]
  end

  it "looks at certificates" do
    assert_light("red", "certificates", /expired/, port: certificate("a.test", -1))
    assert_light("yellow", "certificates", /for 9 d/, port: certificate("a.test", 10))
    assert_light("green", "certificates", /a.test: for 89 d/, port: certificate("a.test", 90))
    assert_light("red", "certificates", /no certificate is for www.a.test/, port: certificate("a.test", 90), args: %w[--canonical-host www.a.test])
    words = certificate("a.test", 90)
    write("key.pem" => "no key")
    assert_light("red", "certificates", /key.pem|cert.pem/, port: words)
    assert_light("red", "certificates", /only this machine trusts/, args: %w[--https])
    assert_light("yellow", "certificates", /port 80 or 443/, port: %w[-b ssl://[::]:0], args: ["--domain", "a.example", "--certs-dir", @folder])
  end

  it "misses compiled assets and files that nobody serves" do
    write(**RAILS, "Gemfile.lock" => "GEM\n  specs:\n    sprockets-rails (3.4.1)\n", "app/assets/a.css" => "", "public/robots.txt" => "",
                   "config/environments/production.rb" => "ENV['RAILS_SERVE_STATIC_FILES'] || ENV['RAILS_LOG_TO_STDOUT']")
    assert_light("red", "assets", %r{public/assets is empty}, /assets:precompile/)
    write("public/assets/a-1.css" => "")
    assert_light("red", "assets", /no manifest/)
    write("public/assets/.sprockets-manifest-1.json" => "{}")
    assert_light("green", "assets", /sprockets-rails/)
    assert_light("green", "public files", /2 entries.*the server serves them/)
    assert_light("yellow", "public files", /neither/, args: %w[--no-public])
    assert_light("yellow", "log of the app", /RAILS_LOG_TO_STDOUT=1/, env: { "DYNO" => "web.1" })
  end

  it "says that Ruby does not start, and that folders cannot be written" do
    assert_light("red", "ruby", /No such file/, args: %w[--ruby /nonexistent/ruby])
    write("blocked" => "")
    assert_light("red", "folders", /pid file/, args: %w[--pidfile blocked/server.pid])
  end

  it "looks up no name with --offline, and colours nothing for a program" do
    out, = firebrick("--offline", "--canonical-host", "nosuch.invalid")
    assert_match(/^green +host names +not looked up/, out)
    out, = firebrick("--canonical-host", "nosuch.invalid")
    assert_match(/^yellow +host names +nosuch.invalid \(canonical_host\) leads nowhere/, out)
    refute_includes out, "\e"
  end

  it "refuses wrong calls with 2" do
    { %w[--behind ngnix] => /--behind ngnix: expected one of nginx/, %w[--grace soon] => /--grace soon: expected/,
      %w[--database-connections 0] => /expected a whole number/, %w[--behnid nginx] => /--behind/, %w[--prot 1] => /--port/ }.each do |words, message|
      _, err, code = firebrick(*words)
      assert_equal 2, code, err
      assert_match message, err
    end
    write("config/puma.rb" => "raise 'not today'")
    _, err, code = firebrick
    assert_equal 2, code
    assert_includes err, "not today"
    FileUtils.rm_r(File.join(@folder, "config"))
    write("firebrick.toml" => "wrokers = 2")
    assert_equal 2, firebrick.last
    File.delete(File.join(@folder, "config.ru"), File.join(@folder, "firebrick.toml"))
    assert_equal 2, firebrick.last
  end
end
