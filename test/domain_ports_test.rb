# frozen_string_literal: true

# The ports of `--domain` when no address is given: 80 and 443 of both address families. In a separate network namespace, where these ports
# are free.

require "support/case"
require "open3"

class DomainPortsTest < Case
  parallel!

  BOTH = %w[http://0.0.0.0:80 http://[::]:80 https://0.0.0.0:443 https://[::]:443].freeze

  def setup
    firebrick_only
    skip "needs the right to make a network (unshare -n)" unless system("unshare", "-n", "ip", "link", "set", "lo", "up", err: File::NULL)
    @dir = Dir.mktmpdir("domain")
    File.write(File.join(@dir, "index.html"), "hello")
  end

  def teardown
    return unless @dir

    if @pid
      Process.kill("TERM", @pid)
      Process.wait(@pid)
    end
    FileUtils.remove_entry(@dir)
  end

  def command(*args)
    ["serve", @dir, "--domain", "a.test", "--acme-directory", "https://127.0.0.1:1/dir", "--certs-dir", File.join(@dir, "certs"), *args]
  end

  def environment
    Server.ruby_files.merge("XDG_RUNTIME_DIR" => @dir, "XDG_STATE_HOME" => @dir, "PORT" => nil)
  end

  # Starts a server in a network in which +prepare+ has run.
  def serve(*args, prepare: "true")
    script = %(ip link set lo up && #{prepare} && exec "$@")
    @pid = Process.spawn(environment, "unshare", "-n", "sh", "-c", script, "sh", Server.binary, *command(*args),
                         out: [log, "w"], err: %i[child out], in: File::NULL)
    wait_until("the server to listen\n#{said}", within: 30) { listening.any? }
  end

  def log
    File.join(@dir, "log")
  end

  def said
    File.exist?(log) ? File.read(log) : ""
  end

  def listening
    said.scan(Server::LISTENING).flatten
  end

  # Runs a program in the server's network.
  def inside(*words)
    Open3.capture2e(environment, "nsenter", "-t", @pid.to_s, "-n", *words)
  end

  it "listens on both families, and answers challenges on both" do
    serve
    assert_equal BOTH, listening
    ["127.0.0.1", "[::1]"].each do |host|
      body, = inside("curl", "-s", "-H", "Host: a.test", "http://#{host}/")
      assert_equal "hello", body, host
      refused, = inside("curl", "-sv", "--connect-to", "a.test:443:#{host}:443", "https://a.test/")
      assert_match(/unrecognized name/, refused, "TLS is spoken on #{host}, without a certificate yet")
    end
    refute_includes said, "HTTP/3 is off"
  end

  it "says so in one line where there is no IPv6" do
    serve(prepare: "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6")
    assert_equal BOTH.grep_v(/::/), listening
    assert_equal 1, said.scan(/this machine has no IPv6: names that are verified here must have no AAAA record/).size
  end

  it "names the port that is taken, and who has it serves on" do
    serve
    err, status = inside(Server.binary, *command)
    refute status.success?
    assert_match(%r{cannot listen on tcp://0\.0\.0\.0:80: .*the port is in use.*: stop that server, or choose another address}, err)
    assert_equal "hello", inside("curl", "-s", "-H", "Host: a.test", "http://127.0.0.1/").first
  end
end
