# frozen_string_literal: true

# Puma's options with their meaning in Puma: addresses, sockets, zeros, names in puma.rb, pid files, flags and pumactl.

require "net/http"
require "open3"
require "support/case"
require "support/upgrading"
require "yaml"

class PumaWordsTest < Case
  parallel! slow: 35

  include Upgrading

  ADDRESS = 'run ->(env) { [200, { "content-type" => "text/plain" }, [env["REMOTE_ADDR"]]] }'
  SPECIAL = %w[PORT WEB_CONCURRENCY RAILS_MAX_THREADS RAILS_MIN_THREADS APP_ENV RACK_ENV RAILS_ENV].to_h { |name| [name, nil] }.freeze

  def setup
    firebrick_only
  end

  def serve(app = ADDRESS, **options)
    start(app: app, env: SPECIAL.merge(options.delete(:env) || {}), **options)
  end

  # Returns the server's response to a client with this `address`.
  def from(address, server, path = "/")
    Net::HTTP.start(address, server.port) { |http| http.get(path).body }
  end

  def ipv6?
    TCPServer.new("::1", 0).close
    true
  rescue SystemCallError
    false
  end

  def both(server)
    [from("127.0.0.1", server), from("::1", server)]
  end

  { "an address" => { binds: ["tcp://[::]:0"] }, "two threads" => { binds: ["tcp://[::]:0"], args: %w[--front-threads 2] },
    "-o ::" => { binds: [], args: %w[-p 0 -o ::] }, "no host at all" => { binds: [], args: %w[-p 0] },
    "puma.rb's port" => { binds: [], workers: nil, files: { "config/puma.rb" => "port 0, '::'" } },
    "puma.rb's port without host" => { binds: [], workers: nil, files: { "config/puma.rb" => "port 0" } },
    "puma.rb's bind" => { binds: [], workers: nil, files: { "config/puma.rb" => "bind 'tcp://[::]:0'" } } }.each do |what, options|
    it "accepts both families at :: by #{what}, and knows clients of IPv4 as such" do
      skip "no IPv6" unless ipv6?
      own = serve(**options, args: [*options[:args], "--access-log", "-"])
      assert_equal %w[127.0.0.1 ::1], both(own)
      assert wait_until("lines") { own.stdout.scan(/^(?:127\.0\.0\.1|::1) - - /).size == 2 }, own.stdout
      refute_includes own.stdout, "::ffff"
    end
  end

  it "accepts only IPv6 with ipv6only, which nginx writes on" do
    skip "no IPv6" unless ipv6?
    %w[true on].each do |on|
      servers = Enumerator.produce { serve(binds: ["tcp://[::]:0?ipv6only=#{on}"]) }.lazy.take(5)
      own = servers.find { |server| free_on_ipv4?(server.port) }
      assert own, "each server has its port on IPv4, too"
      assert_equal "::1", from("::1", own)
    end
  end

  # Another test's server may have the same port on IPv4.
  def free_on_ipv4?(port)
    TCPServer.open("127.0.0.1", port, &:itself)
    true
  rescue Errno::EADDRINUSE
    false
  end

  it "leaves IPv4 to 0.0.0.0 at the same port, and says what else cannot be" do
    skip "no IPv6" unless ipv6?
    port = TCPServer.open("::", 0) { |socket| socket.addr[1] }
    own = serve(binds: ["tcp://0.0.0.0:#{port}", "tcp://[::]:#{port}"])
    assert_equal %w[127.0.0.1 ::1], both(own)
    out, err, code = own.command_line("check", "-b", "tcp://127.0.0.1:1", "-b", "tcp://[::]:1")
    assert_equal 1, code, out
    assert_includes err, "tcp://[::]:1 already accepts IPv4, including tcp://127.0.0.1:1: remove tcp://127.0.0.1:1, or write tcp://[::]:1?ipv6only=true"
  end

  it "trusts and limits clients of IPv4 at :: as such" do
    skip "no IPv6" unless ipv6?
    app = 'run ->(env) { [200, {}, [env["rack.url_scheme"]]] }'
    own = serve(app, binds: ["tcp://[::]:0"], args: %w[--trusted-proxies 127.0.0.0/8], settings: { rate_limits: { all: { rate: "3/h", except: ["127.0.0.1"] } } })
    scheme = ->(address) { Net::HTTP.start(address, own.port) { |http| http.get("/", "X-Forwarded-Proto" => "https").body } }
    assert_equal %w[https http], [scheme.call("127.0.0.1"), scheme.call("::1")]
    5.times { assert_equal "http", from("127.0.0.1", own) }
  end

  it "makes Unix sockets that every user may connect to, unless the address says otherwise" do
    { "" => 0o777, "?umask=0117" => 0o660, "?mode=0640" => 0o640, "?umask=0" => 0o777, "?backlog=5" => 0o777 }.each do |options, mode|
      own = Server.new(app: ADDRESS, workers: nil, binds: [], files: { "config/puma.rb" => "bind 'unix://tmp.sock#{options}'" }, env: SPECIAL)
      @own_servers << own
      own.start
      assert_equal format("%o", mode), format("%o", File.stat(own.path("tmp.sock")).mode & 0o777), options
    end
  end

  it "takes zeros as Puma does" do
    [{ env: { "WEB_CONCURRENCY" => "0" }, workers: nil, threads: "0:4" }, { workers: 0, threads: nil, env: { "RAILS_MIN_THREADS" => "0", "RAILS_MAX_THREADS" => "4" } },
     { workers: nil, threads: nil, files: { "config/puma.rb" => "workers 1.5\nthreads 0, 4" } },
     { workers: nil, threads: nil, files: { "config/puma.rb" => "workers -1\nthreads '0', '4'" } }].each do |options|
      own = serve(**options)
      assert_includes own.stdout, "1 worker x 1:4 threads"
      assert_equal "127.0.0.1", get("/", to: own).body
    end
  end

  it "says what cannot be a number of workers" do
    own = serve
    _, err, code = own.command_line("check", "-w", "-1")
    assert_equal 2, code
    assert_includes err, "-1"
    _, err, code = own.command_line("check", "-t", "0")
    assert_equal 1, code
    assert_includes err, "--threads 0: expected"
  end

  # All of Firebrick's constants, and those inside them.
  NAMES = <<~'RUBY'
    ours = lambda do |mod, seen|
      next if seen.include?(mod)
      seen << mod
      mod.constants(false).flat_map { |name| [name, *(mod.const_get(name).then { |one| one.is_a?(Module) && one.name.to_s.start_with?("Firebrick") ? ours.call(one, seen) : [] })] }
    end
    pumas = %i[DefaultRackup DefaultTCPHost DefaultTCPPort DefaultWorkerCheckInterval DefaultWorkerTimeout DefaultWorkerShutdownTimeout]
    names = (ours.call(Firebrick, []) + %i[Report Worker Service Server Template Hooks Exchange Environment]).uniq - pumas
    seen = names.select { |name| eval("defined?(#{name})") && !Object.const_defined?(name) }
    File.write("seen.log", "#{names.size} #{seen.join(' ')}")
    on_worker_boot do
      inside = names.select { |name| eval("defined?(#{name})") && !Object.const_defined?(name) }
      File.write("booted.log", [inside.join(" "), Report.name, Worker.name, Template::WORDS].join("|"))
    end
  RUBY

  it "finds the app's classes in puma.rb, not our own" do
    app = "class Report; end\nclass Worker; end\nmodule Template; WORDS = 'of the app'; end\n#{ADDRESS}"
    own = serve(app, workers: nil, files: { "config/puma.rb" => NAMES }, leaves: %w[seen.log booted.log])
    assert_match(/\A\d{2,} \z/, File.read(own.path("seen.log")))
    assert wait_until("the hook") { File.exist?(own.path("booted.log")) && !File.empty?(own.path("booted.log")) }, own.report
    assert_equal "|Report|Worker|of the app", File.read(own.path("booted.log"))
  end

  it "reads puma.rb as UTF-8 whatever the locale is, and Puma 4's daemonize" do
    puma_rb = "# Größe\ntag 'größe'\ndaemonize false\n"
    serve(workers: nil, files: { "config/puma.rb" => "\uFEFF#{puma_rb}" }, env: { "LC_ALL" => "C" })
  end

  it "starts where a pid file has the number of another program, and not where that is a server" do
    sleeper = Process.spawn("sleep", "120")
    named = Process.spawn(%w[sleep puma], "120")
    own = serve(files: { "server.pid" => "#{sleeper}\n" }, args: %w[--pidfile server.pid])
    assert_equal own.pid.to_s, File.read(own.path("server.pid")).strip
    other = Server.new(app: ADDRESS, files: { "server.pid" => "#{named}\n" }, args: %w[--pidfile server.pid], exit_code: :any, leaves: %w[server.pid], env: SPECIAL)
    @own_servers << other.launch
    assert_equal 1, other.wait_exit
    assert_includes other.stderr, "names process #{named}"
  ensure
    [sleeper, named].compact.each { |pid| Process.kill("KILL", pid) && Process.wait(pid) }
  end

  it "leaves /dev/null alone in place of a pid file" do
    own = serve(env: { "PIDFILE" => "/dev/null" })
    own.signal("TERM")
    own.wait_exit
    assert_equal "characterSpecial", File.ftype("/dev/null")
  end

  it "takes Puma's flags" do
    own = serve(args: %w[--preload --prune-bundler -S puma.state --redirect-append --tag mine])
    assert_equal "127.0.0.1", get("/", to: own).body
    assert_includes own.stderr, "--preload is ignored: workers are always forked"
    _, err, code = own.command_line("check", "-I", "lib")
    assert_equal [2, "error: Firebrick has no flag -I: set RUBYLIB, which adds to Ruby's load path\n"], [code, err]
  end

  # Sends a command as pumactl does.
  def pumactl(command, port, token: "0123456789abcdef")
    TCPSocket.open("127.0.0.1", port) do |socket|
      socket.write("GET /#{command}?token=#{token} HTTP/1.0\r\n\r\n")
      head, body = socket.read.split("\r\n\r\n", 2)
      [head[/\d{3}/], body]
    end
  end

  it "does what pumactl asks for" do
    app = 'at = File.read("code"); run ->(env) { [200, {}, [at]] }'
    config = "activate_control_app 'tcp://127.0.0.1:0', { auth_token: '0123456789abcdef' }"
    own = serve(app, workers: nil, files: { "config/puma.rb" => config, "code" => "old" }, args: %w[--reload-watch 0s])
    port = own.stdout[%r{http://127\.0\.0\.1:(\d+)/dashboard}, 1].to_i
    assert_equal %w[403], [pumactl("stop", port, token: "wrong").first]
    File.write(own.path("code"), "new")
    assert_equal ["200", "{ \"status\": \"ok\" }\n"], pumactl("phased-restart", port)
    assert wait_until("new code", within: 60) { get("/", to: own).body == "new" }, own.report
    status, body = pumactl("gc", port)
    assert_equal "404", status
    assert_match(/\AUnsupported action: .+\z/, body)
    assert_equal "200", pumactl("stop", port).first
    assert_equal 0, own.wait_exit
  end

  it "writes Puma's state file, by which pumactl finds it, also after an upgrade" do
    skip "pumactl is not installed" unless system("which pumactl", out: File::NULL)
    config = "state_path 'tmp/pids/puma.state'\nactivate_control_app 'tcp://127.0.0.1:0', { auth_token: '0123456789abcdef' }\n"
    [config, "state_path 'tmp/pids/puma.state'\nstate_permission 0o640\n"].each do |text|
      own = launch(app: ADDRESS, env: SPECIAL, workers: nil, files: { "config/puma.rb" => text }, leaves: ["tmp"])
      path = own.path("tmp/pids/puma.state")
      assert_equal text.include?("0o640") ? 0o640 : 0o600, File.stat(path).mode & 0o777
      state = -> { YAML.safe_load_file(path) }
      assert_equal [own.pid, File.realpath(own.dir)], state.call.values_at("pid", "running_from")
      ask = lambda do |command|
        out, status = Open3.capture2e("pumactl", "-S", path, command, chdir: "/")
        assert_predicate status, :success?, "#{command}: #{out}"
        out
      end
      assert_includes ask.call("status"), "Puma is started"
      assert_includes ask.call("stats"), "\"workers\""
      assert_includes ask.call("phased-restart"), "sent success"
      wait_until("the reload", within: 30) { own.stderr.include?("the new code serves") }
      ask.call("restart")
      wait_until("the upgrade", within: 60) { state.call["pid"] != own.pid }
      own.follow(state.call["pid"])
      assert_equal "127.0.0.1", get("/", to: own).body
      ask.call("stop")
      assert wait_until("the end of the file") { !File.exist?(path) }
    end
  end

  it "writes values under a condition as comments" do
    config = "workers 2\nworker_timeout 3600 if ENV.fetch('RACK_ENV', 'development') == 'development'\nthreads(ENV['X'] ? 1 : 2, 4)\n"
    own = serve(workers: nil, files: { "config/puma.rb" => config }, leaves: %w[firebrick.toml])
    out, err, code = own.command_line("check", "--write", "--no-config")
    assert_equal 1, code, out + err
    out, err, code = own.command_line("check", "--write")
    assert_equal 0, code, err
    assert_includes out, "2 values stand under a condition and are comments"
    lines = File.readlines(own.path("firebrick.toml"), chomp: true)
    assert_includes lines, "workers = 2  # config/puma.rb:1"
    assert_includes lines, "# worker = 3600  # config/puma.rb:2"
    assert_includes lines, "# threads = \"2:4\"  # config/puma.rb:3"
  end
end
