# frozen_string_literal: true

# The command line: commands, flags and messages.

require "support/case"

class CommandLineTest < Case
  parallel!

  APP = 'run ->(env) { [200, { "content-type" => "text/plain" }, [[ENV["RACK_ENV"], env["rack.multithread"], env["rack.multiprocess"]].join(" ")]] }'

  def setup
    firebrick_only
    @folder = File.realpath(Dir.mktmpdir("firebrick-cli"))
    write("config.ru", APP)
  end

  def teardown
    FileUtils.remove_entry(@folder) if @folder
  end

  def write(name, content)
    path = File.join(@folder, name)
    FileUtils.mkdir_p(File.dirname(path))
    File.write(path, content)
  end

  def firebrick(*args, env: {}, dir: @folder)
    clean = %w[PORT WEB_CONCURRENCY RAILS_MAX_THREADS RAILS_MIN_THREADS APP_ENV RACK_ENV RAILS_ENV].to_h { |key| [key, nil] }
    out, err, status = Open3.capture3(clean.merge("XDG_RUNTIME_DIR" => @folder, **Server.ruby_files, **env), Server.binary, *args, chdir: dir)
    [out, err, status.exitstatus]
  end

  # Runs a command that must fail. Returns its standard error.
  def refused(*args, code: 1, **options)
    out, err, status = firebrick(*args, **options)
    assert_equal code, status, out + err
    refute_match(/panicked|backtrace/i, err)
    err
  end

  it "prints a page of help with --help and -h, and all options with --help-all" do
    out, err, code = firebrick("--help")
    assert_equal [0, ""], [code, err]
    ["serve", "check", "stats", "--port", "--bind", "--workers", "--threads", "--environment", "--config", "firebrick.toml", "--help-all"].each { |word| assert_includes out, word }
    assert_operator out.lines.size, :<, 150
    assert_equal [out, "", 0], firebrick("-h")
    all, _, code = firebrick("--help-all")
    assert_equal 0, code
    ["--max-body", "--hub-history-memory", "limits.max_body"].each { |word| assert_includes all, word }
    assert_includes firebrick("check", "--help-all").first, "--max-body"
  end

  it "says what a folder without an app or a site could be" do
    FileUtils.rm(File.join(@folder, "config.ru"))
    write("_config.yml", "")
    assert_match(%r{no config.ru in .*; this is the source of a Jekyll site: run `bundle exec jekyll build`, which writes _site/, then `firebrick`$}, refused)
    FileUtils.rm(File.join(@folder, "_config.yml"))
    write("shop/config.ru", "run ->(env) { [200, {}, []] }")
    assert_match(/there are apps below: `firebrick shop`$/, refused)
  end

  it "lists the servers of the machine, also those that do not answer" do
    silent = start(files: { "index.html" => "page" }, workers: nil, threads: nil, args: ["--control", "off"])
    own = start(files: { "index.html" => "page" }, workers: nil, threads: nil)
    out, err, code = own.command_line("ps")
    assert_equal [0, ""], [code, err]
    assert_match(/^PID +USER +STATE +UP +WORKERS +ADDRESSES +DIRECTORY$/, out)
    assert_match(/^#{own.pid} .* serving .* - +http:\S+:#{own.port}/, out.lines.grep(/^#{own.pid} /).first)
    assert_equal 1, out.scan(/^#{own.pid} /).size
    if RUBY_PLATFORM.include?("linux")
      assert_match(/^#{silent.pid} .*\?.* #{Regexp.escape(silent.dir)}\n +its control socket is off, elsewhere, or does not answer$/, out)
    end
    listed = JSON.parse(own.command_line("ps", "--json").first).find { |one| one["pid"] == own.pid }
    assert_equal ["serving", own.dir, nil], listed.values_at("state", "dir", "why")
  end

  it "prints its version with -V and --version" do
    %w[-V --version].each do |flag|
      out, _, code = firebrick(flag)
      assert_equal 0, code
      assert_match(/\Afirebrick \d+\.\d+\.\d+ \((mruby \d+\.\d+\.\d+|without mruby)/, out)
    end
  end

  it "prints completions and a manual page" do
    { %w[completions bash] => "--workers", %w[completions zsh] => "--workers", %w[completions fish] => "workers", %w[man] => ".TH" }.each do |args, word|
      out, err, code = firebrick(*args)
      assert_equal 0, code, err
      assert_includes out, word
    end
  end

  it "refuses a flag that does not exist, naming one that does" do
    assert_match(/--port\b/, refused("serve", "--prot", "3000", code: 2))
  end

  it "accepts README's sample configuration, once the directory of its log exists" do
    write("firebrick.toml", File.read(File.join(Server::ROOT, "README.md"))[/^```toml\n(.*?)^```$/m, 1])
    assert_includes refused("check"), "no folder #{@folder}/log; create it"
    assert_includes refused("serve"), "no folder #{@folder}/log; create it"
    Dir.mkdir(File.join(@folder, "log"))
    out, err, code = firebrick("check")
    assert_equal [0, ""], [code, err]
    assert_includes out, "50MiB"
  end

  it "accepts a valid app and configuration" do
    write("firebrick.toml", "workers = 3\n[limits]\nmax_uri = 2048\n")
    out, err, code = firebrick("check")
    assert_equal 0, code, err
    assert_match(/3 x/, out)
  end

  it "reports an app that cannot be loaded" do
    write("config.ru", "\nraise 'not today'\n")
    message = refused("check")
    assert_includes message, "not today"
    assert_match(/config\.ru:2/, message)
  end

  it "says that no locale is set if the app's files cannot be read for it" do
    write("page.txt", "Übersicht\n")
    write("config.ru", "File.read('page.txt')[/x/]\nrun ->(_) { [200, {}, []] }\n")
    assert_includes refused("check", env: { "LC_ALL" => "POSIX" }), "set LANG=C.UTF-8"
    assert_equal 0, firebrick("check", env: { "LC_ALL" => "C.UTF-8" }).last
  end

  it "refuses a configuration with mistakes, naming file, line and remedy" do
    write("firebrick.toml", "workers = 2\n[limits]\nmax_hedaers = 5\nmax_uri = \"many\"\n")
    [refused("check"), refused("serve", "-p", "0", code: 2)].each do |message|
      assert_match(/firebrick\.toml:3: .*max_headers/, message)
      assert_match(/firebrick\.toml:4: .*whole number|firebrick\.toml:4: .*size/, message)
    end
  end

  it "takes secrets of the configuration from variables, which commands about a running server need not have" do
    file = "[hub]\npath = \"/cable\"\nsecret = \"${SHOP_SECRET}\"\n"
    write("firebrick.toml", file)
    assert_match(/firebrick.toml:3: hub.secret = \(not shown\): the variable SHOP_SECRET is not set/, refused("check"))
    assert_match(/hub.secret .*at least 32 characters/, refused("check", env: { "SHOP_SECRET" => "short" }))
    secret = "0123456789abcdef" * 2
    out, err, code = firebrick("check", env: { "SHOP_SECRET" => secret })
    assert_equal 0, code, out + err
    refute_includes out + err, secret
    own = start(app: APP, settings: "#{file}[reload]\nwatch = \"0s\"\n", env: { "SHOP_SECRET" => secret }, workers: 1, leaves: %w[tmp])
    [%w[stats], %w[reload], %w[hub], %w[stop]].each do |command|
      out, err, code = own.command_line(*command, own.dir)
      assert_equal 0, code, out + err
    end
  end

  it "refuses environment variables that are not numbers, naming them" do
    assert_match(/PORT/, refused("check", env: { "PORT" => "eighty" }))
    assert_match(/WEB_CONCURRENCY/, refused("check", env: { "WEB_CONCURRENCY" => "many" }))
  end

  it "helps by the word, and says its version" do
    help, = firebrick("--help")
    assert_equal [help, "", 0], firebrick("help")
    out, err, code = firebrick("help", "bench")
    assert_equal [0, ""], [code, err]
    assert_includes out, "Usage: firebrick bench"
    assert_equal firebrick("--version"), firebrick("version")
    assert_includes refused("help", "nosuch", code: 2), "nosuch"
  end

  it "exits 1 with a line where its output cannot be written, whatever the command" do
    skip "no /dev/full" unless File.exist?("/dev/full")
    write("static.json", "{}")
    commands = [%w[--help], %w[-h], %w[-V], %w[version], %w[help], %w[help plan], %w[check], %w[check --help], %w[deploy-check --offline], %w[explain /], %w[completions zsh], %w[man],
                %w[plan --rate 100/s --response-time 20ms], %w[certs], %w[trust --dry-run]]
    commands.each do |args|
      env = { "XDG_RUNTIME_DIR" => @folder, "XDG_STATE_HOME" => @folder, "HOME" => @folder, **Server.ruby_files }
      err, status = Open3.capture2e(env, "#{Server.binary} #{args.join(' ')} 2>&1 > /dev/full", chdir: @folder)
      assert_equal 1, status.exitstatus, "#{args.join(' ')}: #{err}"
      assert_equal 1, err.scan("cannot write to standard output: No space left on device").size, "#{args.join(' ')}: #{err}"
      refute_match(/panicked/, err)
    end
  end

  it "exits 1 with a line where the output of commands about a server that runs cannot be written" do
    skip "no /dev/full" unless File.exist?("/dev/full")
    own = start(files: { "a.html" => "page", "index.html" => "" }, workers: nil, threads: nil)
    assert_equal "page", get("/a.html", to: own).body
    ["bench #{own.url('/a.html')} -n 5", "stats", "stats --json", "status", "deaths", "top --once", "stop"].each do |command|
      env = { "XDG_RUNTIME_DIR" => own.run_dir, **Server.ruby_files }
      err, status = Open3.capture2e(env, "#{Server.binary} #{command} 2>&1 > /dev/full", chdir: own.dir)
      assert_equal 1, status.exitstatus, "#{command}: #{err}"
      assert_equal 1, err.scan("cannot write to standard output").size, "#{command}: #{err}"
    end
    assert_equal 0, own.wait_exit
  end

  it "exits 1 or 2 where its errors cannot be written" do
    skip "no /dev/full" unless File.exist?("/dev/full")
    write("broken.ru", "raise 'no'")
    [%w[check broken.ru], %w[check -w x], %w[serve -w x], %w[-w x], %w[bench], %w[plan], %w[stats], %w[stop --timeout x], %w[reload], %w[top], %w[nosuch], %w[tune --budget x]].each do |args|
      { "2>/dev/full" => "full", "2>&1 | true; exit ${PIPESTATUS[0]}" => "closed", "2>&-" => "gone" }.each do |redirection, what|
        _, status = Open3.capture2e({ "XDG_RUNTIME_DIR" => @folder, **Server.ruby_files }, "bash", "-c", "#{Server.binary} #{args.join(' ')} #{redirection}", chdir: @folder)
        assert_includes 1..2, status.exitstatus, "#{args.join(' ')} #{what}"
      end
    end
  end

  it "names who has the port, and what to do where there is no Ruby" do
    taken = TCPServer.new("127.0.0.1", 0)
    err = refused("-b", "tcp://127.0.0.1:#{taken.addr[1]}")
    assert_match(/Address already in use.*the port is in use by process #{Process.pid} \(.+\): stop that server, or choose another address/, err)
    err = refused("-b", "tcp://127.0.0.1:0", "--ruby", "/nowhere/ruby")
    assert_match(%r{cannot start /nowhere/ruby: .*; install Ruby \(apt-get install ruby\), or say where it is: --ruby PATH}, err)
  ensure
    taken&.close
  end

  it "serves a folder of pages that is named, but not one of sources" do
    write("pages/report.html", "report")
    out, err, code = firebrick("check", "pages")
    assert_equal [0, ""], [code, err], out
    assert_includes out, File.join(@folder, "pages")
    write("pages/Gemfile", "")
    assert_includes refused("check", "pages"), "--root DIR"
  end

  it "quotes values as they were typed" do
    write("firebrick.toml", "[limits]\nmax_uri = 1e300\n")
    assert_includes refused("check"), "firebrick.toml:2: limits.max_uri = 1e300: expected a size"
    write("firebrick.toml", "port = \"70000\"\n")
    assert_includes refused("check"), 'port = "70000": expected a whole number from 0 to 65535'
    write("firebrick.toml", "[timeouts]\nqueue = \"1m30\"\n")
    assert_includes refused("check"), 'timeouts.queue = "1m30": expected a time such as 30, "30s", "500ms" or "2m", from 1ms to 24h; did you mean "1m30s"?'
    write("firebrick.toml", "port = \"3000\"\n")
    assert_equal 0, firebrick("check").last
    write("firebrick.toml", "canonical_host = \"https://shop.example\"\n[timeouts]\nqueue = \"1m30s\"\n")
    assert_includes refused("check"), 'did you mean "shop.example"?'
  end

  it "refuses a directory without an app" do
    Dir.mktmpdir { |empty| assert_match(/config\.ru/, refused("serve", "-p", "0", dir: empty)) }
  end
end

class StartTest < Case
  parallel!

  APP = CommandLineTest::APP

  def setup
    firebrick_only
  end

  it "prints a banner: version, Ruby, environment, workers and threads, addresses" do
    own = start(app: APP, workers: 2, threads: "1:4")
    wait_until("the banner") { own.stdout.lines.size > 3 }
    [/firebrick \d+\.\d+/i, /ruby.*\d\.\d/i, /production/, /2.*1:4/, %r{\* Listening on http://127\.0\.0\.1:\d+}].each { |part| assert_match part, own.stdout }
    assert_equal "", own.stderr
  end

  it "prints at most the listeners with -q" do
    own = Server.new(app: APP, args: ["-q", "--pidfile", "server.pid.log"])
    @own_servers << own.launch
    wait_until("the pid file") { File.exist?(own.path("server.pid.log")) }
    assert_equal own.pid, File.read(own.path("server.pid.log")).to_i
    assert_empty own.stdout.lines.grep_v(Server::LISTENING)
  end

  it "passes its environment on to the app" do
    assert_match(/\Astaging /, get("/", to: start(app: APP, environment: "staging")).body)
    assert_match(/\Adevelopment /, get("/", to: start(app: APP, environment: nil)).body)
    assert_match(/\Afrom-env /, get("/", to: start(app: APP, environment: nil, env: { "RACK_ENV" => "from-env" })).body)
  end

  it "honours PORT, WEB_CONCURRENCY and RAILS_MAX_THREADS" do
    port = TCPServer.open("127.0.0.1", 0) { |free| free.local_address.ip_port }
    own = start(app: APP, binds: [], workers: nil, threads: nil, args: ["-o", "127.0.0.1"],
                env: { "PORT" => port.to_s, "WEB_CONCURRENCY" => "2", "RAILS_MAX_THREADS" => "1" })
    assert_equal port, own.port
    assert_equal "production false true", get("/", to: own).body if Server.rack_release < "3"
    assert_equal 2, own.stats["workers"].size
  end

  it "refuses to start on a port that is in use" do
    TCPServer.open("127.0.0.1", 0) do |taken|
      port = taken.local_address.ip_port
      own = Server.new(app: APP, binds: ["tcp://127.0.0.1:#{port}"], exit_code: 1)
      @own_servers << own.launch
      assert_equal 1, own.wait_exit
      assert_logged(/127\.0\.0\.1:#{port}/, on: own)
      assert_match(/in use/i, own.stderr)
    end
  end

  it "gives a second server for the same directory its own control socket" do
    own = start(app: APP)
    second = own.second_instance
    lines = []
    lines << second.gets until lines.last&.include?("Use Ctrl-C")
    socket = lines.join[/--control (\S+\.sock)/, 1]
    assert_path_exists socket
    Process.kill("TERM", second.pid)
    second.close
    refute_path_exists socket
    assert_equal own.pid, own.stats["pid"], "the first server keeps its socket"
  end

  it "listens on several addresses" do
    own = start(app: APP, binds: ["tcp://127.0.0.1:0", "tcp://127.0.0.1:0", "unix://app.sock"])
    assert_equal 3, own.listeners.size
    own.listeners.each do |listener|
      address = listener.start_with?("unix:") ? own.path("app.sock") : ["127.0.0.1", listener[/\d+\z/].to_i]
      connection = Connection.new(address)
      connection.write(request("GET", "/"))
      assert_status 200, connection.read_response
      connection.close
    end
  end

  it "serves a Unix socket, with a REMOTE_ADDR for its clients" do
    app = 'run ->(env) { [200, { "content-type" => "text/plain" }, [[env["REMOTE_ADDR"], env["SERVER_NAME"], env["SERVER_PORT"]].inspect]] }'
    own = start(app: app, binds: ["unix://app.sock?mode=0600"])
    assert_equal 0o600, File.stat(own.path("app.sock")).mode & 0o777
    connection = Connection.new(own.path("app.sock"))
    connection.write(request("GET", "/"))
    response = connection.read_response
    assert_status 200, response
    assert_match(/"example.test", "80"/, response.body)
    connection.close
  end

  it "replaces a stale socket file, and no other file" do
    own = Server.new(app: APP, binds: ["unix://app.sock"])
    UNIXServer.new(own.path("app.sock")).close
    @own_servers << own.start
    connection = Connection.new(own.path("app.sock"))
    connection.write(request("GET", "/"))
    assert_status 200, connection.read_response
    connection.close

    other = Server.new(app: APP, files: { "app.sock" => "precious" }, binds: ["unix://app.sock"], exit_code: 1)
    @own_servers << other.launch
    assert_equal 1, other.wait_exit
    assert_equal "precious", File.read(other.path("app.sock"))
    assert_includes other.stderr, "app.sock"
  end

  it "does not replace a socket that another server listens on" do
    own = start(app: APP, binds: ["unix://app.sock"])
    other = Server.new(app: APP, binds: ["unix://#{own.path('app.sock')}"], exit_code: 1)
    @own_servers << other.launch
    assert_equal 1, other.wait_exit
    assert_match(/in use/i, other.stderr)
    connection = Connection.new(own.path("app.sock"))
    connection.write(request("GET", "/"))
    assert_status 200, connection.read_response
    connection.close
  end

  it "runs warm-up requests before it listens" do
    own = start(app: <<~'RUBY', settings: { rack: { warmup: ["/warm"] } })
      $warmed = []
      run ->(env) { $warmed << env["PATH_INFO"]; [200, { "content-type" => "text/plain" }, [$warmed.inspect]] }
    RUBY
    assert_equal '["/warm", "/x"]', get("/x", to: own).body
  end
end
