# frozen_string_literal: true

# Several machines with one Redis, when one part is down: the machine that orders, the CA, Redis.

require "support/acme_case"

class AcmeMachinesTest < AcmeCase
  parallel! slow: 40

  # The duration of a lease that is not renewed (server/protocols/certs/src/store).
  LEASE = 30

  # A server on its own ports: [server, TLS port].
  def machine(pebble, url, *args, **options)
    http, tls = Pebble.free_ports(2)
    binds = ["tcp://127.0.0.1:#{http}", "ssl://127.0.0.1:#{tls}"]
    [obtain(pebble, "--acme-storage", url, *args, certs: nil, binds:, **options), tls]
  end

  # A machine whose CA stops responding in the middle of an order: [the machine, the CA, the proxy between them].
  def stuck_in_the_middle(url)
    ca = pebble(env: { "PEBBLE_VA_ALWAYS_VALID" => "1" })
    between = proxy(ca) { |kind| sleep 600 if kind == :finalize && between.count(:finalize) == 1 }
    first, = machine(ca, url, directory: between.directory)
    wait_until("the middle of the order", within: PATIENCE) { between.count(:finalize) == 1 }
    [first, ca, between]
  end

  it "finishes what a machine began that has died in the middle of an order" do
    with_redis do |url|
      first, ca, between = stuck_in_the_middle(url)
      second, port = machine(ca, url, directory: between.directory)
      sleep 3
      assert_equal [1, 0], [between.count(:new_order), ca.issued], "one orders, the other waits"
      kill(first)
      took = elapsed { wait_for_certificate(port) }
      assert_operator took, :<=, LEASE + 10
      cert = certificate(port)
      again, restarted = machine(ca, url, directory: between.directory)
      assert_equal cert.serial, certificate(restarted).serial, "the machine that comes back serves it at once"
      assert_equal [1, 1], [ca.issued, ca.accounts]
      [second, again].each { |own| refute_includes own.stderr, "no certificate:" }
    end
  end

  it "lets another machine order when the one that would has ended" do
    with_redis do |url|
      first, ca, between = stuck_in_the_middle(url)
      _, port = machine(ca, url, directory: between.directory)
      stop(first)
      wait_for_certificate(port)
      assert_equal 1, ca.issued
    end
  end

  it "serves what the store has on all machines while the CA is away" do
    with_redis do |url|
      ca = pebble(env: { "PEBBLE_VA_ALWAYS_VALID" => "1" })
      own, port = machine(ca, url)
      serial = wait_for_certificate(port).serial
      stop(own)
      ca.stop
      both = Array.new(2) { machine(ca, url) }
      both.each do |server, tls|
        assert_equal serial, certificate(tls)&.serial, "from the first connection on"
        assert_match(/\AHTTP.1\.1 200 .*hello/m, get_https(tls))
        assert_match(/#{NAME}: valid/, server.command_line("certs", server.dir).first)
      end
      sleep 3
      both.each { |server, _| refute_includes server.stderr, "no certificate:" }
    end
  end

  it "serves on while Redis is away, and starts without it" do
    with_redis do |url, redis|
      ca = pebble(env: { "PEBBLE_VA_ALWAYS_VALID" => "1" })
      _, port = machine(ca, url)
      serial = wait_for_certificate(port).serial
      Process.kill("STOP", redis)
      late, tls = machine(ca, url)
      assert_status 200, get("/", to: late, headers: { "Host" => NAME })
      assert_nil certificate(tls)
      assert_equal serial, certificate(port).serial
      assert(wait_until(within: PATIENCE) { late.stderr.match?(/Redis on 127\.0\.0\.1/) }, "it says what is missing\n#{late.stderr}")
      Process.kill("CONT", redis)
      assert_equal serial, wait_for_certificate(tls).serial
      assert_equal 1, ca.issued
    ensure
      Process.kill("CONT", redis)
    end
  end
end
