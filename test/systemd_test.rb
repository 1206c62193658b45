# frozen_string_literal: true

# systemd: notifications (NOTIFY_SOCKET), the watchdog, and socket activation.

require "net/http"
require "openssl"
require "support/case"
require "support/certificates"
require "support/processes"

class SystemdTest < Case
  parallel! slow: true

  include Certificates

  APP = <<~RUBY
    names = ENV.keys.grep(/NOTIFY|WATCHDOG|LISTEN_/)
    sleep 0.05 until !ENV["SLOW_BOOT"] || File.exist?("../go")
    run lambda { |env|
      sleep 0.02 until File.exist?("../go") if env["PATH_INFO"] == "/wait"
      fds = Dir.children("/proc/self/fd").select { |fd| File.readlink("/proc/self/fd/" + fd).start_with?("socket:") rescue false }
      [200, { "content-type" => "text/plain" }, ["variables: " + names.inspect + ", first sockets: " + (fds.map(&:to_i) & [3, 4, 5]).inspect]]
    }
  RUBY

  # A socket that receives notifications; reads them as hashes of lines.
  class Manager
    attr_reader :address

    def initialize(address)
      @address = address
      @socket = Socket.new(:UNIX, :DGRAM)
      @socket.bind(Addrinfo.unix(address.sub(/\A@/, "\0")))
      @received = []
    end

    def received
      while @socket.wait_readable(0)
        text, = @socket.recvfrom(4096)
        @received << text.lines(chomp: true).to_h { |line| line.split("=", 2) }
      end
      @received
    end

    def close
      @socket.close
      File.delete(@address) unless @address.start_with?("@")
    end
  end

  def setup
    firebrick_only
    @dir = Dir.mktmpdir("firebrick-notify")
    @manager = Manager.new(File.join(@dir, "notify"))
  end

  def teardown
    @manager&.close
    FileUtils.remove_entry(@dir) if @dir
  end

  def told(key, value = nil) = @manager.received.find { |message| message.key?(key) && (value.nil? || message[key] == value) }

  def start_notifying(env: {}, **options)
    start(app: APP, env: { "NOTIFY_SOCKET" => @manager.address }.merge(env), **options)
  end

  it "says that it boots, is ready, and stops" do
    own = start_notifying
    ready = wait_until { told("READY") }
    first = @manager.received.first
    assert_equal "The app is loading", first["STATUS"]
    assert_operator first["EXTEND_TIMEOUT_USEC"].to_i, :>=, 5_000_000
    assert_equal own.pid.to_s, ready["MAINPID"]
    assert_equal "Serving http://127.0.0.1:#{own.port}", ready["STATUS"]
    own.signal("TERM")
    own.wait_exit
    stopping = told("STOPPING", "1")
    assert_equal "Finishing requests", stopping["STATUS"]
    assert_equal 40_000_000, stopping["EXTEND_TIMEOUT_USEC"].to_i, "timeouts.shutdown and some spare"
    assert_nil told("WATCHDOG"), "nobody asked for it"
  end

  it "asks for more time only while the app loads" do
    own = Server.new(app: APP, env: { "NOTIFY_SOCKET" => @manager.address, "SLOW_BOOT" => "1" })
    @own_servers << own
    own.launch
    assert wait_until(within: 20) { @manager.received.count { |message| message["EXTEND_TIMEOUT_USEC"] } >= 2 }, "again after 5 s"
    assert_nil told("READY")
    FileUtils.touch(File.join(own.base, "go"))
    assert wait_until(within: 30) { told("READY") }
  end

  it "speaks to abstract sockets" do
    @manager.close
    @manager = Manager.new("@firebrick-test-#{Process.pid}")
    start_notifying
    assert(wait_until { told("READY") })
  end

  it "tells of a reload with the time of its begin, before it is ready again" do
    own = start_notifying
    wait_until { told("READY") }
    count = @manager.received.size
    before = Process.clock_gettime(Process::CLOCK_MONOTONIC, :microsecond)
    own.signal("HUP")
    assert(wait_until { @manager.received.size >= count + 2 })
    reloading, ready = @manager.received.drop(count)
    assert_equal "1", reloading["RELOADING"]
    assert_includes before..Process.clock_gettime(Process::CLOCK_MONOTONIC, :microsecond), reloading["MONOTONIC_USEC"].to_i
    assert_equal ["1", "Serving http://127.0.0.1:#{own.port}"], ready.values_at("READY", "STATUS")
  end

  it "tells of a new app with the same words, whether it can be loaded or not" do
    own = start_notifying(settings: { reload: { watch: "0s" } })
    [[0, APP], [1, "run ->(_) { ["]].each do |code, source|
      File.write(own.path("config.ru"), source)
      count = @manager.received.size
      assert_equal code, own.command_line("reload", own.dir).last
      assert(wait_until { @manager.received.size >= count + 2 })
      reloading, ready = @manager.received.drop(count)
      assert_equal ["1", "Loading the app again"], reloading.values_at("RELOADING", "STATUS")
      assert_equal ["1", "Serving http://127.0.0.1:#{own.port}"], ready.values_at("READY", "STATUS")
    end
  end

  it "keeps the watchdog quiet, for its own process only, and not while it is stopped" do
    own = start_notifying(env: { "WATCHDOG_USEC" => "400000" })
    assert(wait_until { @manager.received.count { |message| message["WATCHDOG"] == "1" } >= 3 })
    own.signal("STOP")
    sleep 0.1
    count = @manager.received.size
    sleep 0.6
    assert_equal count, @manager.received.size
    own.signal("CONT")
    assert(wait_until { @manager.received.size > count })
    start_notifying(env: { "WATCHDOG_USEC" => "400000", "WATCHDOG_PID" => Process.pid.to_s })
    own.signal("TERM")
    own.wait_exit
    # By then the messages of the first process have arrived.
    sleep 0.2
    count = @manager.received.size
    sleep 0.5
    refute(@manager.received.drop(count).any? { |message| message["WATCHDOG"] })
  end

  it "keeps its variables from the app" do
    own = start_notifying(env: { "WATCHDOG_USEC" => "30000000", "LISTEN_FDNAMES" => "x", "LISTEN_FDS" => "1", "LISTEN_PID" => "1" })
    assert_match(/\Avariables: \[\], /, get("/", to: own).body)
  end

  it "says once that nobody listens, and serves" do
    own = start(app: APP, env: { "NOTIFY_SOCKET" => File.join(@dir, "nobody") })
    assert_status 200, get("/", to: own)
    own.signal("HUP")
    assert_equal 1, own.stderr.scan("systemd cannot be notified").size
    own = start(app: APP, env: { "NOTIFY_SOCKET" => "vsock:2:1" })
    assert_logged "NOTIFY_SOCKET is vsock:2:1: expected a path", on: own
  end

  # Starts a server with sockets passed as by systemd: from descriptor 3 on, with its own LISTEN_PID.
  class ActivatedServer < Server
    HELPER = <<~RUBY
      count = Integer(ARGV.shift)
      ENV["LISTEN_PID"] = Process.pid.to_s
      ENV["LISTEN_FDS"] = count.to_s
      exec(*ARGV, close_others: false, **(3...3 + count).to_h { |fd| [fd, fd] })
    RUBY

    def initialize(sockets:, **options)
      @sockets = sockets
      super(**options)
    end

    def launch
      passed = @sockets.each_with_index.to_h { |socket, index| [index + 3, socket] }
      @pid = Process.spawn(environment, RbConfig.ruby, "-e", HELPER, @sockets.size.to_s, *command, chdir: @dir, pgroup: true, in: File::NULL,
                                                                                                   out: [stdout_path, "w"], err: [stderr_path, "w"], **passed)
      self
    end
  end

  def activated(sockets, **options)
    own = ActivatedServer.new(sockets: sockets, app: APP, **options)
    @own_servers << own
    own
  end

  it "takes over sockets by address, which clients may use before the app is loaded" do
    Dir.mkdir(File.join(@dir, "run"))
    File.symlink("run", File.join(@dir, "link"))
    tcp = TCPServer.new("127.0.0.1", 0)
    unix = UNIXServer.new(path = File.join(@dir, "run", "app.sock"))
    port = tcp.addr[1]
    own = activated([unix, tcp], binds: ["tcp://127.0.0.1:#{port}", "unix://#{@dir}/link/app.sock", "tcp://127.0.0.1:0"],
                                 env: { "SLOW_BOOT" => "1" })
    own.launch
    early = TCPSocket.new("127.0.0.1", port)
    early.write("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    FileUtils.touch(File.join(own.base, "go"))
    # If both ends stayed open here, a bug could leave the request to this process.
    [tcp, unix].each(&:close)
    assert_match(/\AHTTP\S+ 200 .*variables: \[\], first sockets: \[\]/m, early.read)
    UNIXSocket.open(path) do |socket|
      socket.write("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
      assert_match(/\AHTTP\S+ 200 /, socket.read)
    end
    assert(wait_until { own.stdout.scan(/Listening on/).size == 3 })
    own.signal("TERM")
    assert_equal 0, own.wait_exit
    assert File.exist?(path), "the socket file is systemd's"
  end

  it "serves an IPv4 address by the socket that systemd opens for a port, which takes both" do
    both = Addrinfo.tcp("::", 0).bind
    both.close
    both = Socket.new(:INET6, :STREAM)
    both.setsockopt(:IPV6, :V6ONLY, false)
    both.bind(Addrinfo.tcp("::", 0))
    both.listen(16)
    port = both.local_address.ip_port
    own = activated([both], binds: ["tcp://0.0.0.0:#{port}"])
    own.start
    both.close
    TCPSocket.open("127.0.0.1", port) do |socket|
      socket.write("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
      assert_match(/\AHTTP\S+ 200 /, socket.read)
    end
  end

  it "refuses a socket that no address names, and one that is no listener" do
    tcp = TCPServer.new("127.0.0.1", 0)
    own = activated([tcp], exit_code: 1)
    own.launch
    assert_equal 1, own.wait_exit
    assert_match(%r{systemd passed a socket for tcp://127\.0\.0\.1:#{tcp.addr[1]}, but the settings do not listen there; add `-b tcp}, own.stderr)
    datagrams = UDPSocket.new.tap { |socket| socket.bind("127.0.0.1", 0) }
    own = activated([datagrams], exit_code: 1, env: { "LISTEN_FDNAMES" => "quic" })
    own.launch
    assert_equal 1, own.wait_exit
    assert_match(/systemd passed descriptor 3 \(quic\), which is no stream socket/, own.stderr)
  ensure
    tcp&.close
    datagrams&.close
  end

  def ask_port(port)
    TCPSocket.open("127.0.0.1", port) do |socket|
      socket.write("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
      socket.read
    end
  end

  def ask_path(path, target = "/")
    UNIXSocket.open(path) do |socket|
      socket.write("GET #{target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
      socket.read
    end
  end

  it "uses all sockets that are passed with -b systemd, each as what it is, beside those that other binds name" do
    plain, named = Array.new(2) { TCPServer.new("127.0.0.1", 0) }
    unix = UNIXServer.new(path = File.join(@dir, "app.sock"))
    ports = [plain, named].map { |socket| socket.addr[1] }
    own = activated([plain, unix, named], binds: ["systemd", "tcp://127.0.0.1:#{ports.last}?proxy_protocol=v1"],
                                          settings: { rack: { trusted_proxies: ["127.0.0.1"] } })
    own.start
    wait_until("three addresses") { own.stdout.scan(/Listening on/).size == 3 }
    assert_equal ["http://127.0.0.1:#{ports.first}", "unix://#{path}", "http://127.0.0.1:#{ports.last}"].sort, own.stdout.scan(/Listening on (\S+)/).flatten.sort
    [plain, named, unix].each(&:close)
    [ask_port(ports.first), ask_path(path)].each { |response| assert_match(/\AHTTP\S+ 200 /, response) }
    TCPSocket.open("127.0.0.1", ports.last) do |socket|
      socket.write("PROXY TCP4 192.0.2.1 127.0.0.1 1 2\r\nGET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
      assert_match(/\AHTTP\S+ 200 /, socket.read, "as its own bind says")
    end
  end

  it "serves HTTPS and its control socket where their names say so, and hands all of them over in an upgrade" do
    cert, key = certificate
    ports = Array.new(2) { TCPServer.new("127.0.0.1", 0) }
    unix = UNIXServer.new(path = File.join(@dir, "control.sock"))
    http, https = ports.map { |socket| socket.addr[1] }
    own = activated([ports[0], ports[1], unix], binds: ["systemd"], env: { "LISTEN_FDNAMES" => "web:https:control" },
                                                files: { "own.pem" => cert.to_pem, "own.key" => key.to_pem }, args: ["--no-http3"],
                                                settings: { tls: { cert: ["own.pem"], key: ["own.key"] } }, exit_code: :any)
    own.start
    [*ports, unix].each(&:close)
    check = lambda do |pid|
      assert_match(/\AHTTP\S+ 200 /, ask_port(http))
      encrypted = OpenSSL::SSL::SSLSocket.new(TCPSocket.new("127.0.0.1", https)).tap(&:connect)
      encrypted.write("GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
      assert_match(/\AHTTP\S+ 200 /, encrypted.read)
      encrypted.close
      assert_match(/"pid": ?#{pid}\b/, ask_path(path, "/status"))
    end
    check.call(own.pid)
    out, err, code = own.command_line("upgrade", own.dir)
    assert_equal 0, code, -> { out + err + own.report }
    assert_equal 0, own.wait_exit
    new = Integer(out[/process (\d+) is started/, 1])
    check.call(new)
    assert_equal 0, own.command_line("stop", own.dir).last
    assert_path_exists path, "the file is systemd's"
    refute Processes.alive?(new)
  end

  it "hands over a socket that takes both IPv4 and IPv6 in an upgrade" do
    both = Socket.new(:INET6, :STREAM)
    both.setsockopt(:IPV6, :V6ONLY, false)
    both.bind(Addrinfo.tcp("::", 0))
    both.listen(16)
    port = both.local_address.ip_port
    own = activated([both], binds: ["tcp://0.0.0.0:#{port}", "tcp://[::]:#{port}"], exit_code: :any)
    own.launch
    wait_until("it to listen") { own.stdout.include?("Use Ctrl-C") }
    both.close
    out, err, code = own.command_line("upgrade", own.dir)
    assert_equal 0, code, -> { out + err + own.report }
    assert_equal 0, own.wait_exit
    assert_match(/\AHTTP\S+ 200 /, ask_port(port))
    assert_equal 0, own.command_line("stop", own.dir).last
  end

  # puma.rb => the sockets that clients reach: of the file's port, and of systemd.
  {
    "port PORT\nbind_to_activated_sockets" => [true, true],
    "bind 'tcp://127.0.0.1:PORT'\nbind_to_activated_sockets true" => [true, true],
    "port PORT\nbind_to_activated_sockets 'only'" => [false, true]
  }.each do |config, expected|
    it "uses sockets of systemd that puma.rb does not name, with #{config.inspect}" do
      own_port = TCPServer.open("127.0.0.1", 0) { |socket| socket.addr[1] }
      [true, false].each do |is_passed|
        tcp = TCPServer.new("127.0.0.1", 0)
        own = activated(is_passed ? [tcp] : [], binds: [], threads: nil, workers: nil, files: { "config/puma.rb" => config.sub("PORT", own_port.to_s) })
        own.launch
        assert wait_until("the server serves", within: 20) { own.stdout.include?("Use Ctrl-C") || own.stdout.include?("Listening on") }, own.stderr
        port = tcp.addr[1]
        tcp.close
        reached = [own_port, port].map do |one|
          Net::HTTP.get_response("127.0.0.1", "/", one).code == "200"
        rescue SystemCallError
          false
        end
        assert_equal is_passed ? expected : [true, false], reached, own.report
        own.signal("TERM")
        own.wait_exit
      end
    end
  end

  it "refuses -b systemd where there is no socket for it, and a Unix socket that should be HTTPS" do
    unix = UNIXServer.new(File.join(@dir, "app.sock"))
    {
      [[], {}] => /bind systemd: systemd has passed no socket to this process; start the server by its socket unit/,
      [[unix], { "LISTEN_FDNAMES" => "control" }] => /bind systemd: none of the 1 sockets that systemd has passed is left for requests/,
      [[unix], { "LISTEN_FDNAMES" => "https" }] => /calls the Unix socket \S+ https, but only TCP ports speak TLS/
    }.each do |(sockets, env), expected|
      own = activated(sockets, binds: ["systemd"], env: env, exit_code: 1)
      own.launch
      assert_equal 1, own.wait_exit
      assert_match expected, own.stderr
    end
    own = Server.new(app: APP)
    out, err, code = own.command_line("check", own.dir, "-b", "systemd?backlog=4")
    assert_equal 1, code, out
    assert_match(/expected systemd, systemd\?optional=true or systemd\?only=true/, err)
    assert_match(/^ +listen +systemd$/, own.command_line("check", own.dir, "-b", "systemd").first)
  ensure
    unix.close
    FileUtils.remove_entry(own.base) if own
  end

  it "works under systemd-socket-activate" do
    skip "there is no systemd-socket-activate" unless system("which systemd-socket-activate >/dev/null 2>&1")
    port = TCPServer.open("127.0.0.1", 0) { |socket| socket.addr[1] }
    own = Server.new(app: APP, binds: ["tcp://127.0.0.1:#{port}"])
    @own_servers << own
    own.define_singleton_method(:command) { ["systemd-socket-activate", "-l", "127.0.0.1:#{port}", "-E", "XDG_RUNTIME_DIR", "-E", "TMPDIR", "-E", "XDG_STATE_HOME", "-E", "PATH", *(%w[-E FIREBRICK_LIB] if environment.key?("FIREBRICK_LIB") || ENV["FIREBRICK_LIB"]), *super()] }
    own.launch
    response = wait_until do
      TCPSocket.open("127.0.0.1", port) do |socket|
        socket.write("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        socket.read
      end
    rescue Errno::ECONNREFUSED
      nil
    end
    assert_match(/\AHTTP\S+ 200 .*variables: \[\]/m, response)
  end
end
