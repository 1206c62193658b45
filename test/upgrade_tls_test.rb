# frozen_string_literal: true

# Upgrades of servers that speak TLS and HTTP/3, and of those under systemd.

require "support/background_command"
require "support/quic_go"
require "support/tls_case"
require "support/upgrading"
require "support/notify_socket"

class UpgradeTlsTest < TlsCase
  parallel! slow: true

  include Upgrading

  def secure(options = "", **rest)
    launch(files: pair("own", "localhost", "127.0.0.1"), binds: ["ssl://127.0.0.1:0?cert=own.pem&key=own.key#{options}"], **rest)
  end

  # UDP sockets on the server's port.
  def udp_sockets(own) = File.read("/proc/net/udp").scan(/ 0100007F:#{format('%04X', own.port)} /).size

  it "hands over TLS, and announces HTTP/3 again when the old program has ended" do
    own = secure(args: ["--front-threads", "2"])
    assert_match(/h3=":#{own.port}"/, fetch(own)["alt-svc"])
    2.times do |number|
      deploy(own, number.to_s)
      out = assert_upgrades(own, follow: false)
      response = fetch(own)
      assert_equal [number.to_s, nil], [response.body, response["alt-svc"]], "the old program still has the packets"
      own.follow(new_pid(out))
      assert_match(/h3=":#{own.port}"/, wait_until("HTTP/3 to be announced") { fetch(own)["alt-svc"] })
      assert_equal 2, udp_sockets(own)
    end
  end

  # An app that answers requests for /wait when the file exists.
  WAITING = <<~'RUBY'
    version = File.read(File.join(__dir__, "version.txt"))
    run lambda { |env|
      if env["PATH_INFO"] == "/wait"
        File.write("entered.log", "yes")
        sleep 0.02 until File.exist?("finish.log")
      end
      [200, { "content-type" => "text/plain" }, [version]]
    }
  RUBY

  def quic_go
    firebrick_only
    skip "needs Go and quic-go: script/setup test" unless QuicGo.client
  end

  def begin_http3(own, path, *flags) = BackgroundCommand.new({}, *QuicGo.command(own, path, *flags), chdir: own.dir)

  it "answers the requests of HTTP/3 connections, refuses new ones at once, and serves them when the old program has ended" do
    quic_go
    own = secure(app: WAITING)
    waiting = begin_http3(own, "/wait", "-method", "POST", "-body", 100_000)
    wait_until("the request to be served") { File.exist?(own.path("entered.log")) }
    deploy(own, "two")
    out = assert_upgrades(own, follow: false)
    assert_equal "two", fetch(own).body, "over TCP"
    assert_match(/CONNECTION_REFUSED/, QuicGo.ask(own, "/").first["error"])
    File.write(own.path("finish.log"), "")
    answer = JSON.parse(waiting.wait.output).first
    assert_equal [200, "one", nil], answer.values_at("status", "text", "error")
    own.follow(new_pid(out))
    served = wait_until("HTTP/3 again") { QuicGo.ask(own, "/").first.then { |one| one if one["error"].nil? } }
    assert_equal [200, "two"], served.values_at("status", "text")
  end

  it "does not wait for HTTP/3 connections without a request" do
    quic_go
    own = secure(args: ["--shutdown-timeout", "120s"])
    idle = begin_http3(own, "/", "-hold")
    wait_until("the connection") { idle.output.include?("holding") }
    assert_upgrades(own)
    idle.kill
    assert_equal 200, wait_until("HTTP/3 again") { QuicGo.ask(own, "/").first["status"].then { |status| status if status == 200 } }
  end

  it "shares the UDP port among more threads, and among fewer" do
    own = secure(settings: { front_threads: 1 })
    [3, 2].each do |threads|
      File.write(own.path("firebrick.toml"), "front_threads = #{threads}\n")
      assert_upgrades(own)
      wait_until("#{threads} UDP sockets") { udp_sockets(own) == threads }
      assert_status 200, fetch(own)
    end
  end
end

class UpgradeSystemdTest < Case
  parallel! slow: true

  include Upgrading

  def setup
    firebrick_only
    @dir = Dir.mktmpdir("firebrick-notify")
    @manager = NotifySocket.new(File.join(@dir, "notify"))
  end

  def teardown
    @manager&.close
    FileUtils.remove_entry(@dir) if @dir
  end

  it "tells systemd its new main process, and only one program speaks at a time" do
    own = launch_gated(env: { "NOTIFY_SOCKET" => @manager.address, "WATCHDOG_USEC" => "400000" })
    wait_until("ready") { @manager.received.any? { |message| message["READY"] } }
    count = @manager.received.size
    old = own.pid
    out = assert_upgrades(own)
    ready = wait_until("the new one") { @manager.received.drop(count).find { |message| message["MAINPID"] == own.pid.to_s && message["READY"] } }
    messages = @manager.received.drop(count)
    reloading = messages.index { |message| message["RELOADING"] }
    named = messages.index { |message| message["MAINPID"] == own.pid.to_s }
    assert_operator reloading, :<, named
    assert_nil messages[named]["READY"], "the old one names it"
    assert_equal [old], messages[0..named].map { |message| message[:pid] }.uniq
    assert_equal [own.pid], messages.drop(named + 1).map { |message| message[:pid] }.uniq
    assert_match(/\AServing/, ready["STATUS"])
    refute(messages.any? { |message| message["STOPPING"] }, out)
    count = @manager.received.size
    assert(wait_until { @manager.received.drop(count).any? { |message| message["WATCHDOG"] } })
  end

  it "is ready again after an upgrade that has failed" do
    own = launch(env: { "NOTIFY_SOCKET" => @manager.address })
    wait_until("ready") { @manager.received.any? { |message| message["READY"] } }
    count = @manager.received.size
    File.write(own.path("config.ru"), "raise 'broken'")
    assert_refused(own, /broken/)
    messages = wait_until("both") { @manager.received.drop(count).then { |all| all if all.size >= 2 } }
    assert_equal(%w[RELOADING READY], messages.map { |message| message.keys.first })
    assert_equal([own.pid], messages.map { |message| message[:pid] }.uniq)
  end

  # Gets a socket passed as by systemd: descriptor 3, with its own LISTEN_PID.
  class ActivatedServer < Upgrading::UpgradableServer
    HELPER = 'ENV.update("LISTEN_PID" => Process.pid.to_s, "LISTEN_FDS" => "1"); exec(*ARGV, 3 => 3)'

    def initialize(socket:, **options)
      @socket = socket
      super(**options)
    end

    def launch
      @pid = Process.spawn(environment, RbConfig.ruby, "-e", HELPER, *command, chdir: @dir, pgroup: true, in: File::NULL, 3 => @socket,
                                                                               out: [stdout_path, "w"], err: [stderr_path, "w"])
      self
    end
  end

  it "hands over the sockets that systemd has opened, whose files stay systemd's" do
    unix = UNIXServer.new(path = File.join(@dir, "app.sock"))
    own = ActivatedServer.new(socket: unix, app: Upgrading::APP, files: { "version.txt" => "one" }, binds: ["unix://#{path}"])
    @own_servers << own
    own.start
    unix.close
    %w[two three].each do |version|
      deploy(own, version)
      assert_upgrades(own)
      UNIXSocket.open(path) do |socket|
        socket.write(request("GET", "/", "Connection" => "close"))
        assert_match(/#{version}\z/, socket.read)
      end
    end
    own.signal("TERM")
    wait_until("its end") { !own.running? }
    assert_path_exists path
  end
end
