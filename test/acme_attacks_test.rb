# frozen_string_literal: true

# Faults and attacks around obtained certificates: full disks, damaged files, floods of names, an `ask`
# address that does not respond, wrong clocks.

require "support/acme_case"

class AcmeAttacksTest < AcmeCase
  parallel! slow: 70

  FAKETIME = Dir["/usr/lib/{*/,}faketime/libfaketime.so.1"].first

  # A folder with that much space.
  def with_disk(size)
    skip "needs the right to mount" unless Process.uid.zero?
    dir = File.join(@certs, "disk")
    Dir.mkdir(dir)
    skip "cannot mount here" unless system("mount", "-t", "tmpfs", "-o", "size=#{size}", "tmpfs", dir, err: File::NULL)
    begin
      yield dir
    ensure
      # A server may still have a file open there.
      system("umount", "-l", dir)
    end
  end

  # Fills a folder completely.
  def fill(dir)
    File.open(File.join(dir, "filler"), "ab") { |file| loop { file.syswrite("x" * 1024) } }
  rescue Errno::ENOSPC
    nil
  end

  it "uses a certificate that a full disk cannot keep, and keeps it when there is room" do
    with_disk("64k") do |disk|
      fill(disk)
      ca = pebble
      own = obtain(ca, certs: disk)
      cert = wait_for_certificate(ca.tls_port)
      assert_logged(/the certificate for #{NAME} is used but cannot be kept: .*No space left.*make room on the disk; it is tried again/, on: own)
      assert_logged(/the account cannot be kept, so that a restart makes another one: .*make room on the disk/, on: own)
      assert_empty Dir[File.join(disk, "*", "{.*.tmp,*.pem}")], "no half of a file"
      File.delete(File.join(disk, "filler"))
      wait_until("the file", within: 90) { Dir[File.join(disk, "*", "#{NAME}.pem")].any? }
      stop(own)
      ca.stop
      obtain(ca, certs: disk)
      assert_equal cert.serial, certificate(ca.tls_port)&.serial
    end
  end

  # Ways to damage a file of the store.
  DAMAGES = {
    "cut off" => ->(file) { File.truncate(file, File.size(file) / 2) },
    "empty" => ->(file) { File.truncate(file, 0) },
    "not text" => ->(file) { File.binwrite(file, Random.bytes(5_000)) },
    "not what it was" => ->(file) { File.write(file, '{"thumbprint": 3, "names": "-----BEGIN CERTIFICATE-----"}') },
    "too large" => ->(file) { File.truncate(file, 5 << 20) },
    "not readable" => ->(file) { File.delete(file) && Dir.mkdir(file) }
  }.freeze

  { "account.json" => /the account at .* is made anew: /, "#{NAME}.pem" => /#{Regexp.escape(NAME)}.*ordered anew/, "#{NAME}.json" => nil }.each do |name, said|
    it "survives a damaged #{name}" do
      ca = pebble
      own = obtain(ca)
      wait_for_certificate(ca.tls_port)
      wait_until("the files") { stored("*.json").size == 2 }
      DAMAGES.each do |what, damage|
        stop(own)
        file = stored(name).first
        damage.call(file)
        # Without an account there can be no order.
        FileUtils.rm_rf(stored("#{NAME}.pem")) if name == "account.json"
        own = obtain(ca)
        wait_for_certificate(ca.tls_port)
        assert_logged(said, on: own) if said
        refute_includes own.stderr, "no certificate:", what
        refute_includes own.stderr, "panicked", what
      end
    end
  end

  it "puts up with a store that becomes damaged while it serves" do
    ca = pebble
    own = obtain(ca)
    cert = wait_for_certificate(ca.tls_port)
    wait_until("the files") { stored("*.json").size == 2 }
    stored("*").each { |file| File.binwrite(file, "garbage") if File.file?(file) }
    assert_equal cert.serial, certificate(ca.tls_port).serial
    shown, _, code = own.command_line("certs", own.dir)
    assert_equal 0, code
    assert_match(/#{NAME}: valid/, shown)
  end

  # The client's first message, for a name as long as SNI_NAME.
  SNI_NAME = "name-0000000.flood.test"

  def client_hello
    here, there = UNIXSocket.pair
    tls = OpenSSL::SSL::SSLSocket.new(here)
    tls.hostname = SNI_NAME
    tls.connect_nonblock(exception: false)
    there.readpartial(10_000)
  ensure
    [here, there].each { |socket| socket&.close }
  end

  # Clients that request that many different names, and do not wait.
  def flood(port, count, hello = client_hello)
    (1..count).map do |number|
      socket = Socket.tcp("127.0.0.1", port, connect_timeout: 5)
      socket.write(hello.sub(SNI_NAME, format("name-%07d.flood.test", number)))
      socket
    end
  end

  it "goes on when a thousand names a second are asked for, and `ask` says nothing" do
    ca = pebble
    asked = Queue.new
    silent = true
    listener = TCPServer.new("127.0.0.1", 0)
    held = Queue.new
    answers = Thread.new do
      loop do
        client = listener.accept
        asked << (name = client.gets.to_s[/domain=(\S+)/, 1])
        next held << client if silent

        client.write(http(name == "shop.test" ? "200 OK" : "404 Not Found", "text/plain", ""))
        client.close
      end
    end
    own = obtain(ca, "--acme-on-demand", "--acme-ask", "http://127.0.0.1:#{listener.local_address.ip_port}")
    wait_for_certificate(ca.tls_port)
    before = own.pss
    3.times do
      clients = flood(ca.tls_port, 1_000)
      assert_status 308, get("/", to: own, headers: { "Host" => NAME })
      assert_match(/\AHTTP.1\.1 200 .*hello/m, get_https(ca.tls_port), "names with a certificate are served")
      clients.each(&:close)
    end
    # 16 at a time, each for half a minute.
    assert_operator asked.size, :<=, 32, "questions"
    assert_operator own.pss - before, :<, 64 << 20
    assert_equal 1, ca.issued
    # Names are accepted again as soon as there are answers.
    silent = false
    held.pop.close until held.empty?
    wait_for_certificate(ca.tls_port, "shop.test")
    assert_logged(/acme\.ask does not respond, so that no name is welcome: /, on: own)
  ensure
    answers&.kill
    listener&.close
  end

  it "orders for few of a thousand welcome names at a time" do
    # A rejected nonce would count as another order.
    ca = pebble(env: { "PEBBLE_VA_ALWAYS_VALID" => "1", "PEBBLE_WFE_NONCEREJECT" => "0" })
    under_way = Queue.new
    most = 0
    between = proxy(ca) do |kind|
      case kind
      when :new_order
        under_way << 1
        most = [most, under_way.size].max
      when :certificate then under_way.pop
      end
      nil
    end
    ask = answering { "HTTP/1.1 200 OK" }
    own = obtain(ca, "--acme-on-demand", "--acme-ask", ask, "--acme-on-demand-per-hour", "20", domains: [], directory: between.directory)
    clients = flood(ca.tls_port, 1_000)
    wait_until("all orders of the hour", within: PATIENCE) { ca.issued == 20 }
    assert_status 200, get("/", to: own, headers: { "Host" => NAME })
    assert(wait_until(within: PATIENCE) { own.stderr.include?("the limit acme.on_demand_per_hour is reached") })
    assert_operator most, :<=, 4
    assert_equal 20, ca.issued
    refused = lambda do |client|
      client.read_nonblock(1, exception: false) != :wait_readable
    rescue SystemCallError
      true
    end
    assert(wait_until(within: PATIENCE) { clients.count(&refused) > 500 })
    lines = own.stderr.lines.grep(/on_demand_per_hour/)
    assert_match(/no certificate: \S+: the limit acme\.on_demand_per_hour is reached \(20\)/, lines.first)
    assert_operator lines.size, :<, 10, "one line when it begins, and one a minute"
  ensure
    clients&.each(&:close)
  end

  # Sets the clock of a server, as seconds that it is ahead. Times of files are not faked, as with a real clock that is set: newer
  # libfaketimes fake them, too, and then a server would not recognise its own socket's file.
  def clock(seconds)
    file = File.join(@certs, "clock")
    File.write("#{file}.new", format("%+d", seconds))
    File.rename("#{file}.new", file)
    { "LD_PRELOAD" => FAKETIME, "FAKETIME_TIMESTAMP_FILE" => file, "FAKETIME_NO_CACHE" => "1", "FAKETIME_DONT_FAKE_MONOTONIC" => "1",
      "NO_FAKE_STAT" => "1" }
  end

  it "obtains a certificate as soon as a clock is set right that was twenty years ahead" do
    skip "needs libfaketime (Debian's package faketime)" unless FAKETIME
    ca = pebble
    own = obtain(ca, env: clock(20 * 365 * 86_400))
    assert_logged(/no certificate: #{NAME}: .*its certificate is not trusted/, on: own)
    assert_status 200, get("/", to: own, headers: { "Host" => NAME })
    clock(0)
    wait_for_certificate(ca.tls_port)
  end

  it "renews when the clock jumps ahead, without a storm of orders, and forgets that when it jumps back" do
    skip "needs libfaketime (Debian's package faketime)" unless FAKETIME
    ca = pebble(validity: 90 * 86_400)
    own = obtain(ca, env: clock(0))
    first = wait_for_certificate(ca.tls_port)
    # With the clock changed, every certificate of this CA has less than a third of its lifetime left.
    clock(70 * 86_400)
    wait_for_another(ca.tls_port, first, within: 90)
    sleep 10
    assert_operator ca.issued, :<=, 6
    clock(0)
    issued = ca.issued
    days = -> { (Time.iso8601(entry(own)["next_order"]) - Time.now) / 86_400 }
    wait_until("a renewal that is months away", within: 90) { days.call > 50 }
    assert_operator ca.issued, :<=, issued + 1
    assert certificate(ca.tls_port)
  end
end
