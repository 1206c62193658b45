# frozen_string_literal: true

# `limits.memory`: however many clients read nothing, read slowly or upload slowly, the front stays within its memory, others are served, and
# everything is given back.

require "support/memory_case"

class MemoryTest < MemoryCase
  quiet! 170

  %w[string chunked].each do |path|
    it "holds 2,000 streams over HTTP/2 that nobody reads (/#{path})" do
      own = serve
      clients, = assert_within_memory(own) { Array.new(20) { stalled(own, "/#{path}", 100) } }
      clients.each(&:close)
      assert_given_back(own)
    end
  end

  # Each response is too small to be worth a file or the end of its client.
  { "/small" => 60, "/few" => 20 }.each do |path, connections|
    it "gives up small responses that fill memory together (#{path})" do
      own = serve(limits: { memory: "64MiB" })
      clients = Array.new(connections) { stalled(own, path, 100) }
      # A client counts as stalled after 2 s. timeouts.send is 60 s.
      wait_until("memory to be scarce", within: 20) { own.stats["memory"]["reached_waiting"].positive? }
      wait_until("stalled responses to make room", within: 20) { Array.new(10) { get("/", to: own).status }.uniq == [200] }
      _, stats = assert_within_memory(own) { nil }
      assert_operator stats["reached_waiting"], :>, 0, stats.to_s
      clients.each(&:close)
      assert_given_back(own)
    end
  end

  it "holds 60 slow readers of 5 MB" do
    own = serve
    clients, = assert_within_memory(own) do
      Array.new(60) { connect(own, receive_buffer: 8192).write(request("GET", "/large")) }
    end
    clients.each(&:close)
    assert_given_back(own)
  end

  # Responses of 13 MB that fit into neither memory nor file make the app wait; a client that reads nothing must not hold its threads.
  ["2:2", "fibers", "plain Ruby"].each do |seats|
    %w[long stream].each do |path|
      it "frees the app's threads from clients that do not read (/#{path}, #{seats})" do
        options = seats == "fibers" ? { threads: "1:1", settings: { fibers: 2 } } : { threads: "2:2" }
        options[:env] = { "FIREBRICK_PURE" => "1" } if seats == "plain Ruby"
        own = serve(limits: { response_spool: "4MiB" }, **options)
        streams = Array.new(2) { stalled(own, "/#{path}", 5) }
        clients = Array.new(4) { connect(own, receive_buffer: 8192).write(request("GET", "/#{path}")) }
        wait_until("the app to wait for them") { own.stats["workers"].sum { |one| one["in_flight"] } == 2 }
        served = elapsed { 3.times { assert_status 200, get("/", to: own, headers: GOOD) } }
        # timeouts.send is 60 s.
        assert_operator served, :<, 20
        (streams + clients).each(&:close)
      end
    end
  end

  it "leaves a slow reader its response, however many requests wait" do
    own = serve(limits: { response_spool: "1MiB" }, threads: "1:1")
    slow = connect(own, receive_buffer: 8192).write(request("GET", "/long"))
    wait_until("the app to wait for it") { own.stats["workers"].sum { |one| one["in_flight"] } == 1 }
    waiting = connect(own, deadline: 60).write(request("GET", "/"))
    16.times do
      slow.socket.readpartial(8_000)
      sleep 0.5
    end
    assert waiting.silent?, "the thread is still taken"
    slow.close
    assert_status 200, waiting.read_response
  end

  it "holds 1,000 slow uploads" do
    own = serve(limits: { body_memory: "1MiB" })
    head = "POST /upload HTTP/1.1\r\nHost: example.test\r\nContent-Length: 1048576\r\n\r\n"
    clients, = assert_within_memory(own) do
      Array.new(1000) { connect(own).write(head + ("u" * 300_000)) }
    end
    assert_operator own.stats["memory"]["reached_files"], :>, 0, "bodies went to files"
    clients.each(&:close)
    assert_given_back(own)
  end

  # Asks for a large response and resets the request at once, on a connection after the other.
  def reset_without_end(own)
    loop do
      client = Http2Client.new(own.address)
      loop { client.write(Array.new(50) { client.headers(stream = client.next_stream, Hpack.block(client.fields("/string"))) + client.rst_stream(stream) }.join) }
    rescue SystemCallError, IOError
      client&.close
    end
  end

  it "serves others beside floods of resets over HTTP/2 while memory is scarce" do
    own = serve(limits: { memory: "96MiB" })
    floods = []
    clients, stats = assert_within_memory(own) do
      floods = Array.new(3) { Thread.new { reset_without_end(own) } }
      Array.new(20) { stalled(own, "/string", 20) }
    end
    assert_operator stats["reached_files"], :>, 0, stats.to_s
    floods.each(&:kill).each(&:join)
    clients.each(&:close)
    assert_given_back(own)
  ensure
    floods&.each(&:kill)
  end

  # Programs that leave the server little of the processors.
  def beside_busy_programs(count)
    busy = Array.new(count) { Process.spawn("/bin/sh", "-c", "while :; do :; done") }
    yield
  ensure
    busy&.each { |pid| Process.kill(:KILL, pid) && Process.wait(pid) }
  end

  # The body arrives in pieces, so the server may stop reading it.
  def upload_slowly(own)
    client = connect(own, deadline: 60)
    client.write("POST /upload HTTP/1.1\r\nHost: example.test\r\nX-Forwarded-For: 192.0.2.7\r\nContent-Length: 40000\r\n\r\n")
    4.times do
      client.write("u" * 10_000)
      sleep 0.02
    end
    client.read_response
  ensure
    client&.close
  end

  # Waits longer than `get`.
  def get_at_last(own)
    client = connect(own, deadline: 60)
    client.write(request("GET", "/", GOOD)).read_response
  ensure
    client&.close
  end

  # Nothing that saves only work can make room here, and no file: uploads wait for each other's memory, and responses for their clients. A
  # client that reads nothing is known after 15 s of silence.
  it "serves others soon when only uploads and unread responses hold memory" do
    skip "needs a folder in memory" unless File.directory?("/dev/shm")
    Dir.mktmpdir(nil, "/dev/shm") do |dir|
      own = serve(args: ["--temp-dir", dir], limits: { memory: "64MiB", body_memory: "1MiB", max_connections: 4000 })
      head = "POST /upload HTTP/1.1\r\nHost: example.test\r\nContent-Length: 1048576\r\n\r\n"
      clients = [Array.new(400) { connect(own).write(head + ("u" * 150_000)) }]
      clients += %w[/small /chunked /long].map { |path| Array.new(4) { stalled(own, path, 50) } }
      clients << Array.new(20) { connect(own, receive_buffer: 8192).write(request("GET", "/long")) }
      beside_busy_programs(3) do
        waits = Array.new(12) do
          sleep 1
          elapsed do
            assert_equal("quick", until_served { get_at_last(own) })
            assert_equal("40000", until_served { upload_slowly(own) })
          end
        end
        puts "#{name}: #{waits.map { |wait| wait.round(2) }} #{own.stats['memory']}" if ENV["TEST_VERBOSE"]
        assert_operator waits.max, :<, 60
      end
      assert_operator own.stats["memory"]["reached_waiting"], :>, 0
      clients.flatten.each(&:close)
      assert_given_back(own)
    ensure
      own&.finish
    end
  end

  it "gives back files of sites before clients wait" do
    page = "<p>#{'0123456789' * 3_000}</p>"
    files = Array.new(40) { |number| ["public/page#{number}.html", page] }.to_h
    own = serve(files: files, settings: { files: { public: "always" }, site: { cache_memory: "16MiB" } }, limits: { memory: "64MiB" })
    coded = { "Accept-Encoding" => "gzip" }
    kept = -> { own.stats["memory"]["sites_bytes"] }
    wait_until("files in memory", within: 20) do
      client = connect(own)
      client.write(Array.new(40) { |number| request("GET", "/page#{number}.html") * 4 }.join)
      160.times { client.read_response }
      40.times { |number| assert_equal "gzip", get("/page#{number}.html", to: own, headers: coded)["content-encoding"] }
      kept.call > 2 * MIB
    end
    # Memory is full again and again, until the clients that read nothing have stalled for 2 s: then requests get 503, and come again.
    patient = -> { served_at_last(within: 10) { get("/", to: own, headers: GOOD) } }
    clients, = assert_within_memory(own, times: 20, get: patient) do
      clients = []
      # As many as it takes: how many responses are small enough for memory depends on how quickly the rest goes to files.
      wait_until("memory to be scarce", within: 60) do
        clients += %w[/small /chunked].flat_map { |path| Array.new(6) { stalled(own, path, 100) } }
        own.stats["memory"]["reached_waiting"].positive?
      end
      clients
    end
    wait_until("files of sites to leave memory") { kept.call < 64 << 10 }
    assert_operator kept.call, :<, 64 << 10, "they leave memory"
    assert_equal "gzip", get("/page1.html", to: own, headers: coded)["content-encoding"]
    clients.each(&:close)
    assert_given_back(own)
  end

  it "serves others when there is no room for files" do
    skip "needs the right to mount" unless Process.uid.zero?
    Dir.mktmpdir do |disk|
      skip "cannot mount here" unless system("mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk, err: File::NULL)
      own = serve(args: ["--temp-dir", disk], settings: { cache: { memory: "32MiB", disk: File.join(disk, "cache") } }, limits: { body_memory: "64KiB" })
      head = "POST /upload HTTP/1.1\r\nHost: example.test\r\nContent-Length: 1048576\r\n\r\n"
      20.times { |number| assert_status 200, get("/cached#{number}", to: own) }
      # Responses that fit nowhere take all threads, until it is clear that their clients read nothing.
      clients = Array.new(5) { connect(own, receive_buffer: 8192).write(request("GET", "/large")) }
      wait_until("all threads to wait for them") { own.stats["workers"].sum { |one| one["in_flight"] } == 5 }
      assert_status 200, connect(own, deadline: 60).write(request("GET", "/", GOOD)).read_response
      clients, = assert_within_memory(own) { clients + Array.new(50) { connect(own).write(head + ("u" * 300_000)) } }
      clients.each(&:close)
      assert_given_back(own)
    ensure
      own&.finish
      system("umount", "-l", disk)
    end
  end

  def resume(pid)
    Process.kill(:CONT, pid)
  rescue Errno::ESRCH
    # The server has replaced it.
  end

  it "serves others when a worker is stopped while memory is scarce" do
    own = serve(workers: 2, limits: { memory: "96MiB" })
    stopped = own.stats["workers"].first["pid"]
    clients, stats = assert_within_memory(own) do
      all = Array.new(20) { stalled(own, "/string", 20) }
      wait_until("memory to be scarce", within: 30) { own.stats["memory"]["reached_files"].positive? }
      Process.kill(:STOP, stopped)
      all
    end
    assert_operator stats["reached_files"], :>, 0
    clients.each(&:close)
    resume(stopped)
    assert_given_back(own)
  ensure
    resume(stopped) if stopped
  end

  it "holds 2,000 idle connections" do
    own = serve(limits: { max_connections: 4000 })
    clients, = assert_within_memory(own, times: 10) do
      Array.new(2000) { connect(own).tap { |client| client.write(request("GET", "/")).read_response } }
    end
    clients.each(&:close)
  end

  it "holds a full cache, idle connections, stalled streams, slow readers and slow uploads at once" do
    own = serve(settings: { cache: { memory: "100MiB" } }, limits: { body_memory: "1MiB", max_connections: 14_000 })
    head = "POST /upload HTTP/1.1\r\nHost: example.test\r\nContent-Length: 1048576\r\n\r\n"
    idle, uploads = ENV.key?("TEST_FIGURES") ? [10_000, 1000] : [1000, 300]
    clients, stats = assert_within_memory(own) do
      240.times { |number| get("/cached#{number}", to: own) }
      assert_operator own.stats["kept_responses"]["used_bytes"], :>, 80 * MIB
      Array.new(idle) { connect(own).tap { |client| client.write(request("GET", "/")).read_response } } +
        Array.new(20) { stalled(own, "/string", 100) } +
        Array.new(30) { connect(own, receive_buffer: 8192).write(request("GET", "/large")) } +
        Array.new(uploads) { connect(own).write(head + ("u" * 300_000)) }
    end
    assert_operator stats["reached_files"], :>, 0
    assert_logged(/memory is scarce: .* of 256 MiB are used \(.*limits\.memory\); /, on: own)
    clients.each(&:close)
    assert_given_back(own)
    assert_logged(/memory is no longer scarce: /, on: own)
  end

  it "refuses new requests with 503, Retry-After and the reason when memory is full, and serves again afterwards" do
    settings = ->(memory) { { front_threads: 1, limits: { memory: memory, max_queue: 100_000 }, reload: { watch: "0s" } } }
    own = start(app: APP, binds: ["tcp://127.0.0.1:0?h2c=true"], threads: "5:5", settings: settings["#{LIMIT}MiB"])
    clients = Array.new(6) { stalled(own, "/string", 20) }
    wait_until("responses that are held") { own.stats["memory"]["files_bytes"] > 60 * MIB }
    File.write(own.path("firebrick.toml"), SettingsFile.render(settings["40MiB"]))
    out, err, code = own.command_line("reload", own.dir)
    assert_equal 0, code, "#{out}#{err}"
    refused = get("/", to: own)
    assert_equal [503, "1"], [refused.status, refused["retry-after"]], own.stats["memory"].to_s
    assert_logged(/the memory for clients is used up \(limits\.memory is 40 MiB\)/, on: own)
    stats = own.stats["memory"]
    assert_operator stats["refused"], :>, 0
    assert_operator stats["reached_full"], :>, 0
    # Responses whose clients read nothing make room.
    assert wait_until(within: 20) { get("/", to: own).status == 200 }, own.stats["memory"].to_s
    clients.each(&:close)
    assert_given_back(own)
  end

  it "shows its figures in stats and metrics" do
    own = serve
    get("/", to: own)
    memory = own.stats["memory"]
    assert_equal [LIMIT * MIB, "normal", 0], memory.values_at("limit_bytes", "level", "refused")
    assert_operator memory["used_bytes"], :>, MIB
    classes = %w[connections requests responses streams quic files cache sites handlers encoders other]
    assert_in_delta memory["used_bytes"], classes.sum { |name| memory["#{name}_bytes"] }, 128 << 10
    metrics = own.metrics
    assert_match(/^firebrick_budget_limit_bytes #{LIMIT * MIB}$/, metrics)
    assert_match(/^firebrick_budget_bytes\{class="responses"\} \d+$/, metrics)
  end
end
