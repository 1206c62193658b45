# frozen_string_literal: true

# Workers of a Ruby that cannot fork: each is a separate process, which loads the app and connects. Here the Ruby is CRuby that
# claims to be another one; with RUBY=jruby (`make test-jruby`) it is JRuby.

require "digest"
require "support/case"
require "support/load"
require "support/reloading"

class SpawnedWorkersTest < Case
  parallel! slow: true

  include Reloading

  # Answers the query for the engine.
  OTHER = <<~'SH'
    #!/bin/sh
    case "$2" in *RUBY_ENGINE_VERSION*) echo asked >> asked.log; printf 'otherruby 1.0'; exit;; esac
    exec ruby "$@"
  SH

  # The same without descriptors.
  STREAMING = OTHER.sub("exec ruby", "exec ruby -r #{File.expand_path('support/without_descriptors', __dir__)}")

  # The number of reloads under load.
  RELOADS = Integer(ENV.fetch("TEST_RELOADS", "3"))
  # Bytes that a front may keep from each reload; a worker's state is larger.
  KEPT = 512 << 10

  # Seconds for the start of a worker: a virtual machine on a busy computer.
  PATIENCE = ENV.key?("RUBY") ? 180 : 30

  def launch(app: APP, settings: {}, files: {}, leaves: [], ruby: OTHER, **options)
    firebrick_only
    unless ENV.key?("RUBY")
      files = { "bin/otherruby" => ruby }.merge(files)
      settings = { ruby: "bin/otherruby" }.merge(settings)
      leaves += ["asked.log"]
    end
    launch_app(app: app, files: files, settings: settings, leaves: leaves, threads: "2:2", **options)
  end

  # A file that is executable when the server starts.
  def start(**options)
    own = made(**options)
    @own_servers << own
    own.start
  end

  def made(**options)
    Server.new(**options).tap { |own| Dir[own.path("bin/*")].each { |file| File.chmod(0o755, file) } }
  end

  def spawned(own)
    own.processes.select { |one| one.parent == own.pid }.map(&:pid)
  end

  # Returns the body. The request may wait for a worker to start.
  def patient_get(path, own)
    connection = connect(own, deadline: PATIENCE)
    connection.write(request("GET", path))
    connection.read_response("GET").body
  end

  it "gives what the app starts the environment that the server was started with" do
    app = "run ->(_) { [200, {}, [%x(printenv LD_PRELOAD; printenv FIREBRICK_LD_PRELOAD; printenv FIREBRICK_TOKEN)]] }"
    own = launch(app: app, settings: { rack: { allocator: "jemalloc" } })
    assert_equal "", patient_get("/", own)
  end

  it "serves with workers that the front has started, and asks once what the Ruby is" do
    own = launch(workers: 2)
    assert_equal "one", get("/", to: own).body
    assert_equal 2, spawned(own).size
    assert_includes spawned(own).map(&:to_s), get("/pid", to: own).body
    assert_equal 1, File.readlines(own.path("asked.log")).size unless ENV.key?("RUBY")
  end

  it "replaces a worker that is killed" do
    own = launch
    old = get("/pid", to: own).body
    Process.kill("KILL", old.to_i)
    assert_logged(/signal 9/, on: own)
    refute_equal old, patient_get("/pid", own)
  end

  it "answers 502 to what a killed worker had begun" do
    own = launch
    slow = connect(own)
    slow.write(request("GET", "/slow"))
    wait_until("the request to be served") { File.exist?(own.path("entered.log")) }
    Process.kill("KILL", spawned(own).first)
    assert_equal 502, slow.read_response("GET").status
    assert_equal "one", patient_get("/", own)
  end

  # Loads until the file `wait`, if it exists, is removed.
  LOADS_LONG = <<~'RUBY'
    File.write("loading.log", "#{Process.pid}\n", mode: "a") if File.exist?("wait")
    sleep 0.01 while File.exist?("wait")
    run ->(_) { [200, {}, [Process.pid.to_s]] }
  RUBY

  # Keeps the next worker loading.
  def keep_next_loading(own)
    File.write(own.path("wait"), "")
    yield
    wait_until("a worker that loads the app", within: PATIENCE) { File.exist?(own.path("loading.log")) }
  end

  it "ends while a worker is loading the app, which has no link to be told by" do
    own = launch(app: LOADS_LONG, leaves: %w[wait loading.log])
    keep_next_loading(own) { Process.kill("KILL", spawned(own).first) }
    own.signal("TERM")
    assert_equal 0, own.wait_exit
  end

  it "takes back a worker that is loading the app, and can start others" do
    own = launch(app: LOADS_LONG, leaves: %w[wait loading.log])
    keep_next_loading(own) { own.signal("TTIN") }
    own.signal("TTOU")
    wait_until("the worker that is one too many to end") { spawned(own).size == 1 }
    refute_match(/died/, own.stderr)
    File.delete(own.path("wait"))
    own.signal("TTIN")
    wait_until("a second worker to serve", within: PATIENCE) { own.stats["workers"].count { |one| one["state"] == "ready" } == 2 }
  end

  it "reloads beside the old worker, without a lost request" do
    own = launch(workers: 2, settings: { reload: { keep: "0s", watch: "0s" } })
    load = Load.new(own.address, clients: 4, path: "/20ms", keep_alive: true).start
    wait_until("load") { load.completed.size > 20 }
    memory = Array.new(RELOADS) do |number|
      deploy(own, "number #{number}")
      assert_reloads(own)
      assert_equal "number #{number}", get("/", to: own).body
      Processes.rollup(own.pid, "Pss_Anon")
    end
    load.stop
    assert_empty load.errors
    assert_equal [200], load.completed.map(&:status).uniq
    wait_until("the workers of the old code to end") { spawned(own).size == 2 }
    report(load, memory)
    # Memory of the first reload is reused by the others.
    assert_operator memory.last - memory.first, :<=, RELOADS * KEPT, "bytes that the front has grown by: #{memory.inspect}"
  end

  # Prints the figures of a long run.
  def report(load, memory)
    return unless ENV.key?("TEST_RELOADS")

    puts format("\n%<reloads>d reloads, %<requests>d requests, none failed; memory of the front: %<list>s KiB",
                reloads: RELOADS, requests: load.completed.size, list: memory.map { |bytes| bytes / 1024 }.join(" "))
  end

  it "keeps the old code when the new cannot be loaded, and goes back with --undo" do
    own = launch
    deploy(own, "two")
    assert_reloads(own)
    assert_equal "two", get("/", to: own).body
    # No process has the old code in memory: it is loaded again from its folder, which is the same one here.
    deploy(own, "one")
    assert_reloads(own, "--undo")
    assert_equal "one", get("/", to: own).body
    FileUtils.rm(own.path("version.txt"))
    refute_equal 0, reload(own)[2]
    assert_equal "one", get("/", to: own).body
    assert_logged(/the app cannot be loaded/, on: own)
  end

  PASSES = <<~'RUBY'
    require "digest"
    run lambda { |env|
      case env["PATH_INFO"]
      when "/upload" then 2.times { env["rack.input"].rewind }; [200, {}, [Digest::MD5.hexdigest(env["rack.input"].read)]]
      when "/stream" then [200, {}, ->(stream) { 3.times { |n| stream << n.to_s }; stream.close }]
      when "/large" then [200, {}, ["x" * 3_000_000]]
      when "/file" then body = Object.new; def body.to_path; File.expand_path("version.txt"); end; def body.each; raise; end; [200, {}, body]
      else io = env["rack.hijack"].call; io << "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhijacked"; io.close; [200, {}, []]
      end
    }
  RUBY

  def md5(text) = Digest::MD5.hexdigest(text)

  { "" => OTHER, ", without descriptors" => STREAMING }.each do |how, ruby|
    it "passes on uploads, files, streams and hijacked connections#{how}" do
      own = launch(app: PASSES, ruby: ruby)
      upload = Random.new(1).bytes(3_000_000)
      assert_equal md5(upload), post("/upload", upload, to: own).body
      clients = Array.new(4) { |n| Thread.new { [md5(upload + n.to_s), post("/upload", upload + n.to_s, to: own).body] } }
      clients.each { |client| assert_equal(*client.value) }
      assert_equal "012", get("/stream", to: own).body
      assert_equal "x" * 3_000_000, get("/large", to: own).body
      assert_equal "one", get("/file", to: own).body
      socket = connect(own)
      socket.write(request("GET", "/hijack"))
      assert socket.read_response("GET").body.end_with?("hijacked")
    end
  end

  it "keeps the scoreboard of a worker that cannot be sent it" do
    skip "of the Ruby that says so" if ENV.key?("RUBY")
    own = launch(ruby: STREAMING)
    3.times { get("/", to: own) }
    # A request is counted only after its response has been sent.
    wait_until("three finished, none begun") { own.stats["workers"].first.values_at("requests", "busy_threads") == [3, 0] }
    slow = connect(own)
    slow.write(request("GET", "/slow"))
    wait_until("the request to be served") { File.exist?(own.path("entered.log")) }
    Process.kill("KILL", spawned(own).first)
    # The request may have had an effect, so it is not repeated.
    assert_equal 502, slow.read_response("GET").status
    assert_equal 1, File.readlines(own.path("entered.log")).size
    wait_until("the line") { own.stderr.match?(%r{finished 3 requests\b.*; it was serving GET /slow}) }
  end

  it "says what has no effect" do
    own = launch(settings: { rack: { out_of_band_gc: true } })
    assert_match(/no effect with .*: rack.out_of_band_gc/, own.stdout)
  end

  it "refuses a puma.rb, which needs a template" do
    firebrick_only
    own = made(app: APP, files: { "bin/otherruby" => OTHER, "config/puma.rb" => "workers 2\n" })
    _, err, code = own.command_line("check", own.dir, "--ruby", own.path("bin/otherruby"))
    refute_equal 0, code
    assert_match(/puma.rb needs a Ruby that forks, and this is otherruby 1.0: .*firebrick.toml/, err)
  ensure
    FileUtils.remove_entry(own.base)
  end
end
