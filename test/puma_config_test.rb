# frozen_string_literal: true

# config/puma.rb: read where there is no firebrick.toml, evaluated once for each template, and described by `check`.

require "support/case"
require "support/certificates"
require "support/reloading"

class PumaConfigTest < Case
  parallel! slow: true

  include Reloading

  APP = 'run ->(env) { [200, { "content-type" => "text/plain" }, [ENV.fetch("FROM_PUMA_RB", "app")]] }'
  # Without the time that new workers are watched after a reload.
  SOON = %w[--reload-watch 0s].freeze
  TRACE = "File.write('evaluated.log', [Process.pid, 10.chr].join, mode: 'a'); "

  def setup
    firebrick_only
    @folders = []
  end

  def teardown
    @folders.each { |folder| FileUtils.remove_entry(folder) }
  end

  # A folder without a server.
  def folder(config = nil, app: APP, files: {}, env: {})
    files = files.merge("config/puma.rb" => config) if config
    Server.new(app: app, files: files, env: env).tap { |own| @folders << own.base }
  end

  def check(own, *args)
    out, err, code = own.command_line("check", *args)
    [out + err, code]
  end

  def assert_check(own, *args)
    text, code = check(own, *args)
    assert_equal 0, code, text
    text
  end

  def refute_check(own, *args)
    text, code = check(own, *args)
    assert_equal 1, code, text
    text
  end

  def evaluations(own)
    File.readlines(own.path("evaluated.log"), chomp: true)
  end

  it "is evaluated once at the start, in the process that becomes the template, and once more for each reload" do
    config = "#{TRACE}ENV['FROM_PUMA_RB'] = 'puma'; workers 2"
    own = launch_app(app: APP, files: { "config/puma.rb" => config }, settings: {}, workers: nil)
    # `launch_app` writes a firebrick.toml, which takes precedence but does not disable a file that is named.
    assert_equal "app", get("/", to: own).body
    refute_path_exists own.path("evaluated.log")

    other = start(app: APP, files: { "config/puma.rb" => config }, workers: nil, args: SOON)
    assert_equal "puma", get("/", to: other).body
    assert_equal templates(other).map { |one| one.pid.to_s }, evaluations(other)
    assert_equal 2, workers_of(other).size
    2.times { assert_reloads(other) }
    assert_equal 3, evaluations(other).uniq.size
    assert_equal 3, evaluations(other).size
  end

  it "is evaluated once by check" do
    own = folder("#{TRACE}threads 2, 4")
    assert_check own
    assert_equal 1, evaluations(own).size
  end

  it "is read where -C says" do
    own = folder(files: { "elsewhere/web.rb" => "threads 3, 3\nport" })
    text = refute_check(own, "-C", "elsewhere/web.rb")
    assert_match(%r{elsewhere/web\.rb:2: ArgumentError: wrong number of arguments}, text)
    assert_match(/there is no such file/, refute_check(own, "-C", "missing.rb"))
  end

  {
    "a method that Puma does not have" =>
      ["workers 1\nworker_timout 3", %r{config/puma\.rb:2: worker_timout: Puma has no such setting; did you mean "worker_timeout"\?}],
    "an exception" => ["\n\nENV.fetch('NOT_THERE_AT_ALL')", %r{config/puma\.rb:3: KeyError: key not found: "NOT_THERE_AT_ALL"}],
    "an exception elsewhere" =>
      ["require 'json'\nJSON.parse('{')", %r{config/puma\.rb:2: JSON::ParserError: .*}m],
    "a syntax error" => ["workers 1\nthreads (", %r{config/puma\.rb:\d+: SyntaxError: }],
    "a constant that is not there" => ["workers 1\nNotThereAtAll.call", %r{config/puma\.rb:2: NameError: uninitialized constant NotThereAtAll$}],
    "a library that is missing" => ["require 'not_there_at_all'", %r{config/puma\.rb:1: LoadError: cannot load such file}],
    "exit" => ["exit 3", %r{config/puma\.rb:1: exit was called \(3\)}],
    "a value that its setting does not take" =>
      ["workers 'many'", %r{config/puma\.rb:1: workers "many": expected}],
    "a wrong address" => ["bind 'tpc://0.0.0.0:3000'", %r{config/puma\.rb:1: bind "tpc://0\.0\.0\.0:3000": .*did you mean}],
    "TLS without a certificate" =>
      ["ssl_bind '0.0.0.0', 9443, cert_pem: 'x', key_pem: 'y'", %r{config/puma\.rb:1: ssl_bind .*no cert_pem: give a file}],
    "a plugin that is not there" => ["plugin :not_there_at_all", %r{config/puma\.rb:1: Puma::UnknownPlugin: }],
    "a rackup file that is not there" => ["rackup 'no.ru'", %r{config/puma\.rb:1: rackup "no\.ru": expected a rackup file that exists}]
  }.each do |what, (config, expected)|
    it "says place and reason of #{what}" do
      own = folder(config)
      text = refute_check(own)
      assert_match expected, text
      _, err, code = own.command_line("serve", "-p", "0")
      assert_equal [1, text], [code, err]
    end
  end

  it "serves with one worker for workers 0, and a port of its own" do
    own = start(app: APP, files: { "config/puma.rb" => "workers 0\nthreads 0, 4\nport 0, '127.0.0.1'\nprune_bundler" },
                binds: [], workers: nil, threads: nil)
    assert_match(%r{\Ahttp://127\.0\.0\.1:}, own.listeners.first)
    assert_equal 1, workers_of(own).size
    assert_logged %r{config/puma\.rb:4: prune_bundler is ignored: }, on: own
    assert_match(/1 worker x 1:4 threads/, own.stdout)
  end

  it "serves an app of the file, from the directory of the file" do
    config = "directory 'inside'\napp { |env| [200, {}, [Dir.pwd]] }"
    own = start(files: { "config/puma.rb" => config, "inside/x" => "" }, args: [], workers: nil)
    # The test's helper passes the directory, which takes precedence.
    assert_equal own.dir, get("/", to: own).body
    out, = own.command_line("check")
    assert_match(%r{app/config/puma\.rb$}, out.lines.first)
    assert_match(/directory "inside"\s+mapped/, out)
  end

  it "runs blocks as hooks, each where it belongs" do
    config = <<~'RUBY'
      def say(what) = File.write("hooks.log", "#{what} #{Process.pid}\n", mode: "a")
      workers 1
      threads 1, 1
      before_fork { say "before_fork" }
      before_worker_fork { |index| say "before_worker_fork:#{index}" }
      after_worker_fork { |index| say "after_worker_fork:#{index}" }
      on_worker_boot { raise "does not stop the others" }
      before_worker_boot(:shared) { |index, data| data[:from] = "boot"; say "before_worker_boot:#{index}" }
      before_worker_shutdown(:shared) { |index, data| say "before_worker_shutdown:#{index}:#{data[:from]}" }
      after_worker_shutdown { |handle| say "after_worker_shutdown:#{handle.index}:#{handle.process_status.success?}" }
      before_thread_start { say "before_thread_start" }
      before_thread_exit { say "before_thread_exit" }
      lowlevel_error_handler { |error, env, status| [status, { "x-own" => "yes" }, ["#{error.message} at #{env["PATH_INFO"]}\n"]] }
    RUBY
    own = start(app: 'run ->(env) { raise "oops" }', files: { "config/puma.rb" => config }, workers: nil, threads: nil)
    response = get("/here", to: own)
    assert_status 500, response
    assert_equal ["oops at /here\n", "yes"], [response.body, response["x-own"]]
    assert_logged(/before_worker_boot of puma\.rb: RuntimeError: does not stop the others/, on: own)
    template = templates(own).first.pid
    worker = workers_of(own).first
    own.signal("TERM")
    own.wait_exit
    wanted = [["before_fork", template], ["before_worker_fork:0", template], ["after_worker_fork:0", template],
              ["before_worker_boot:0", worker], ["before_thread_start", worker], ["before_thread_exit", worker],
              ["before_worker_shutdown:0:boot", worker], ["after_worker_shutdown:0:true", template]]
    said = File.readlines(own.path("hooks.log"), chomp: true)
    assert_equal wanted.map { |what, pid| "#{what} #{pid}" }.sort, said.sort
    # The lines of one process are in order.
    assert_equal wanted.select { |_, pid| pid == worker }.map { |what, pid| "#{what} #{pid}" }, said.grep(/ #{worker}\z/)
  end

  it "gives requests the scheme, address and methods that it says" do
    config = "rack_url_scheme 'https'\nset_remote_address header: 'X-Real-IP'\nsupported_http_methods %w[GET]\n"
    app = 'run ->(env) { [200, {}, [env.values_at("rack.url_scheme", "REMOTE_ADDR").join(" ")]] }'
    own = start(app: app, files: { "config/puma.rb" => config }, workers: nil)
    assert_equal "https 192.0.2.7", get("/", to: own, headers: { "X-Real-IP" => "192.0.2.7" }).body
    assert_equal "https 127.0.0.1", get("/", to: own).body
    assert_status 501, post("/", "x", to: own)
  end

  it "sends what the app prints to the files of stdout_redirect" do
    config = "stdout_redirect 'log/out.log', 'log/err.log', true\nlog_requests\n"
    app = 'run ->(env) { puts "printed"; warn "warned"; raise "oops" if env["PATH_INFO"] == "/oops"; [200, {}, ["x"]] }'
    own = start(app: app, files: { "config/puma.rb" => config, "log/.keep" => "" }, workers: nil)
    get("/oops", to: own)
    read = ->(name) { File.read(own.path("log/#{name}.log")) }
    assert wait_until("lines") { read["out"].include?("printed") && read["err"].include?("oops") && read["out"].include?("GET /oops") },
           "#{read['out']}\n#{read['err']}"
    assert_includes read["err"], "warned"
  end

  it "has Puma's constants, but no server" do
    config = <<~'RUBY'
      workers 2
      tag [defined?(Puma::Server).inspect, Puma::Const::VERSION.to_i.positive?, defined?(Puma::Plugin), defined?(Puma::Events)].join("/")
    RUBY
    app = <<~'RUBY'
      run ->(env) { [200, {}, [Puma.stats_hash.fetch(:worker_status).size.to_s]] }
    RUBY
    own = start(app: app, files: { "config/puma.rb" => config }, workers: nil)
    text, = own.command_line("check")
    assert_match(%r{tag = nil/true/expression/expression|tag = nil/true/constant/constant|tag = nil/true/}, text)
    assert_equal "2", get("/", to: own).body
  end

  # Runs, in place of a service's process, the parts of the file that belong beside the workers.
  BESIDE = <<~'RUBY'
    module Firebrick
      class Template
        def self.set_up_bundler = nil
        def self.front = Process.pid
      end
    end
    require "firebrick/puma_file"
    words = Firebrick::PumaFile.evaluate("config/puma.rb", "")
    abort words.inspect unless words.first == "configured"
    services = {}
    Firebrick.define_singleton_method(:service) { |name, **options, &block| services[name] = [options, block] }
    Firebrick::PumaFile.current.install
    service = Object.new
    def service.wait = sleep(0.2)
    services.each do |name, (options, block)|
      puts "#{name} #{options}"
      block.call(service)
    rescue RuntimeError => e
      puts "#{name} died: #{e.message}"
    end
  RUBY

  # A bundle without Puma, and one with it.
  { "of its own" => "gem 'rack'", "of the gem" => "gem 'rack'\ngem 'puma'" }.each do |whose, gemfile|
    it "runs plugins beside the workers, with the constants #{whose}" do
      config = "plugin :ours\nplugin :dies\nours_mode :async\nafter_booted { puts 'booted' }\non_restart { puts 'again' }\nafter_stopped { puts 'stopped' }"
      ours = <<~'RUBY'
        require "puma/plugin"
        module Puma
          class DSL
            def ours_mode(mode) = @options[:ours_mode] = mode
          end
        end
        Puma::Plugin.create do
          def start(launcher)
            puts "start #{launcher.options[:ours_mode]} #{launcher.config.environment} #{launcher.respond_to?(:restart)}"
            launcher.events.on_booted { launcher.log_writer.log("ours booted") }
            launcher.events.after_stopped { puts "ours stopped" }
            in_background { puts "ours in background" }
          end
        end
      RUBY
      dies = "Puma::Plugin.create { def start(_launcher) = raise('broken') }"
      files = { "plugins/puma/plugin/ours.rb" => ours, "plugins/puma/plugin/dies.rb" => dies, "beside.rb" => "$stdout.sync = true\n#{BESIDE}",
                "Gemfile" => "source 'https://rubygems.org'\n#{gemfile}\n" }
      own = folder(config, files: files)
      lib = [File.join(Server::ROOT, "worker/lib"), own.path("plugins")]
      env = { "BUNDLE_GEMFILE" => own.path("Gemfile"), "RACK_ENV" => "test" }
      out, status = Open3.capture2e(env, ENV.fetch("RUBY", "ruby"), "-rbundler/setup", *lib.flat_map { |dir| ["-I", dir] }, "beside.rb", chdir: own.dir)
      assert status.success?, out
      wanted = ["ours {:stop_timeout=>15}", "start async test true", "ours booted", "ours in background", "ours stopped",
                "dies {:stop_timeout=>15}", "dies died: broken", "puma {:stop_timeout=>15}", "booted", "again", "stopped"]
      assert_equal wanted.sort, out.lines(chomp: true).sort.uniq
      assert_operator out.index("ours booted"), :<, out.index("ours stopped")
    end
  end

  it "runs a plugin in a service, which does not take the server along when it dies" do
    skip "there are no services of the app yet" unless File.exist?(File.join(Server::ROOT, "worker/lib/firebrick/service.rb"))
    plugin = <<~'RUBY'
      Puma::Plugin.create do
        def start(launcher)
          File.write("started.log", "#{Process.pid}\n", mode: "a")
          raise "broken" unless File.readlines("started.log").size > 1
          launcher.events.after_booted { File.write("booted.log", Puma.stats_hash.fetch(:worker_status).size.to_s) }
        end
      end
    RUBY
    files = { "config/puma.rb" => "workers 2\nplugin :ours", "plugins/puma/plugin/ours.rb" => plugin }
    own = start(app: APP, files: files, workers: nil, env: { "RUBYLIB" => "plugins" })
    wait_until("the plugin", within: 30) { File.exist?(own.path("booted.log")) }
    assert_equal "2", File.read(own.path("booted.log"))
    assert_operator File.readlines(own.path("started.log")).uniq.size, :>, 1
    assert_equal "app", get("/", to: own).body
  end

  it "is turned into a firebrick.toml that says the same, once" do
    config = "workers 2\nthreads 1, 5\nport 3000\nworker_timeout 30\nprune_bundler\nbefore_fork { }\nplugin :tmp_restart\n"
    own = folder(config)
    assert_match(/firebrick\.toml is written/, assert_check(own, "--write"))
    toml = File.read(own.path("firebrick.toml"))
    assert_match(%r{^workers = 2  # config/puma\.rb:1$}, toml)
    assert_match(/^\[timeouts\]\nworker = 30 /, toml)
    assert_match(%r{^#   before_fork \{ \}: runs in the template.*config/puma\.rb:6}, toml)
    text = assert_check(own)
    assert_match(/workers = 2\s+firebrick\.toml/, text)
    assert_match(%r{there is no config/puma\.rb to make}, refute_check(own, "--write"))
    assert_match(/is there already, and stays as it is/, refute_check(own, "--write", "-C", "config/puma.rb"))
    assert_equal toml, File.read(own.path("firebrick.toml"))
  end

  it "keeps the old code when a reload finds a mistake in it" do
    own = start(app: APP, files: { "config/puma.rb" => "ENV['FROM_PUMA_RB'] = 'one'\nworkers 1" }, workers: nil, args: SOON)
    File.write(own.path("config/puma.rb"), "workers 1\nwokers 2")
    _, err, code = reload(own)
    assert_equal 1, code
    assert_match(%r{config/puma\.rb:2: wokers: Puma has no such setting; did you mean "workers"\?}, err)
    File.write(own.path("config/puma.rb"), "workers 'x'")
    assert_match(/workers "x": expected/, reload(own)[1])
    assert_equal "one", get("/", to: own).body
    File.write(own.path("config/puma.rb"), "ENV['FROM_PUMA_RB'] = 'two'\nworkers 2")
    assert_reloads(own)
    assert_equal "two", get("/", to: own).body
    wait_until("two workers") { workers_of(own).size == 2 }
  end

  it "is evaluated again by a template that takes the place of a dead one" do
    own = start(app: APP, files: { "config/puma.rb" => "#{TRACE}ENV['FROM_PUMA_RB'] = 'puma'" }, workers: nil)
    first = templates(own).first.pid
    Process.kill("KILL", first)
    wait_until("another template") { templates(own).any? { |one| one.pid != first } && evaluations(own).size == 2 }
    assert_equal "puma", get("/", to: own).body
  end

  # Every method of the DSL in Ruby has a row in the table of the program, and the other way round.
  it "has a row in docs/puma-rb.md for each method" do
    table = File.read(File.join(Server::ROOT, "docs/puma-rb.md")).scan(/^\| (`.*?) \| /).flatten
    rows = table.flat_map { |cell| cell.scan(/`([^`]+)`/).flatten }
    ruby = "require 'firebrick/puma_file'; require 'firebrick/puma_file/dsl'; puts Firebrick::PumaFile::PUMAS"
    out, status = Open3.capture2(ENV.fetch("RUBY", "ruby"), "-I", File.join(Server::ROOT, "worker/lib"), "-e", ruby)
    assert status.success?
    assert_equal rows.sort, out.split.sort
  end
end

# Files like those of well-known projects (test/apps/puma_configs). Comments at their top contain the expected output of `check`,
# and the files and variables that they need.
class PumaConfigsTest < Case
  parallel!

  include Certificates

  PLUGINS = {
    "solid_queue" => <<~RUBY,
      require "puma/plugin"
      module Puma
        class DSL
          def solid_queue_mode(mode = :fork)
            @options[:solid_queue_mode] = mode.to_sym
          end
        end
      end
      Puma::Plugin.create do
        def start(launcher)
          launcher.events.on_booted { launcher.log_writer.log("queue") }
        end
      end
    RUBY
    "yabeda" => "Puma::Plugin.create { def start(launcher) = in_background { launcher.options } }\n",
    "tuned" => "Puma::Plugin.create { def config(dsl) = dsl.first_data_timeout(7) }\n"
  }.freeze

  def setup
    firebrick_only
  end

  def facts(text)
    text.scan(/^# (\w+): (.*)$/).group_by(&:first).transform_values { |pairs| pairs.map(&:last) }
  end

  def prepare(own, facts)
    facts.fetch("mkdir", []).flat_map(&:split).each { |dir| FileUtils.mkdir_p(own.path(dir)) }
    FileUtils.mkdir_p(own.path("tmp"))
    facts.fetch("certificate", []).each do |name|
      %w[crt key].zip(certificate) { |ending, one| File.write(own.path("#{name}.#{ending}"), one.to_pem) }
    end
  end

  Dir[File.join(__dir__, "apps/puma_configs/*.rb")].sort.each do |path|
    it "knows what to do with #{File.basename(path, '.rb')}" do
      text = File.read(path)
      facts = facts(text)
      trace = 'File.write("evaluated.log", "x", mode: "a"); '
      # On the first line that is not a comment, so that line numbers do not change.
      files = { "config/puma.rb" => text.sub(/^(?=[^#\n])/, trace) }
      facts.fetch("plugin", []).each { |name| files["plugins/puma/plugin/#{name}.rb"] = PLUGINS.fetch(name) }
      facts.fetch("file", []).each { |line| line.split(" ", 2).then { |name, content| files[name] = content } }
      env = facts.fetch("env", []).flat_map(&:split).to_h { |pair| pair.split("=", 2) }
      app = facts["no_rackup"] ? nil : "run ->(_env) { [200, {}, []] }"
      own = Server.new(app: app, files: files, env: env.merge("RUBYLIB" => "plugins"))
      prepare(own, facts)
      out, err, code = own.command_line("check")
      assert_equal 0, code, "#{out}#{err}"
      flat = out.gsub(/ +/, " ")
      facts.fetch("check").each { |expected| assert_includes flat, expected }
      facts.fetch("missing", []).each { |unexpected| refute_includes flat, unexpected }
      assert_match(/^The app loads/, out)
      assert_equal "x", File.read(own.path("evaluated.log"))
    ensure
      FileUtils.remove_entry(own.base)
    end
  end
end
