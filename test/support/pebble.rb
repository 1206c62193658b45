# frozen_string_literal: true

# A CA for tests: Let's Encrypt's Pebble with its DNS server, from Debian's package `pebble` or as `script/setup test` builds
# them. It connects to the given ports, resolves every name to 127.0.0.1, and issues certificates under its own root.

require "fileutils"
require "json"
require "net/http"
require "open3"
require "openssl"
require "socket"
require "support/certificates"
require "support/clock"
require "tmpdir"

class Pebble
  include Certificates
  include Clock

  EAB = { kid: "kid-1", hmac: "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W" }.freeze

  class << self
    def installed?
      !!(usual && dns_server)
    end

    # Returns whether there is a Pebble with profiles and renewal windows; those of Debian 12 and 13 have none.
    def new?
      !newest.nil?
    end

    # Returns the path of Debian's Pebble, or of a new one where there is no other.
    def usual
      @usual ||= programs("pebble").find { |path| path != newest } || newest
    end

    # Returns the path of a Pebble of 2025 or later.
    def newest
      return @newest if defined?(@newest)

      # There is no flag for it, and Debian's Pebble reports "dev" as its version.
      @newest = programs("pebble").find { |path| File.binread(path).include?("/set-renewal-info/") }
    end

    def dns_server
      programs("pebble-challtestsrv").first
    end

    # Returns its flags for a DNS address. Later versions serve DNS over HTTPS, too, and the latest have renamed the flag.
    def dns_flags(address)
      help = Open3.capture2e(dns_server, "-h").first
      [help.include?("-dnsserver") ? "-dnsserver" : "-dns01", address, *(["-doh", ""] if help.include?("-doh "))]
    end

    private

    def programs(name)
      [*ENV.fetch("PATH", "").split(":"), File.expand_path("~/go/bin")].map { |dir| File.join(dir, name) }.select { |path| File.executable?(path) }
    end
  end

  PORTS = Mutex.new
  private_constant :PORTS

  # Returns ports of 127.0.0.1 on which nothing listens. They are below those that the system uses for outgoing connections, and none
  # is returned twice.
  def self.free_ports(count)
    PORTS.synchronize do
      @given ||= []
      Array.new(count) { free_port.tap { |port| @given << port } }
    end
  end

  def self.free_port
    loop do
      port = rand(16_000..32_000)
      next if @given.include?(port)

      TCPServer.new("127.0.0.1", port).close
      return port
    rescue Errno::EADDRINUSE
      next
    end
  end
  private_class_method :free_port

  attr_reader :http_port, :tls_port, :port

  # validity:: the lifetime of certificates, in seconds
  # eab::      whether accounts need a binding
  # profiles:: the lifetimes of certificates in seconds, by name; for a new Pebble
  # ports::    another CA whose validation ports this one shares
  # env::      added to its environment, or replacing its values
  def initialize(validity: nil, eab: false, profiles: nil, ports: nil, env: {})
    @dir = Dir.mktmpdir("pebble")
    @port, @management, @dns, @dns_management = Pebble.free_ports(4)
    @http_port, @tls_port = ports ? [ports.http_port, ports.tls_port] : Pebble.free_ports(2)
    @program = profiles ? Pebble.newest : Pebble.usual
    profiles ||= { "default" => validity } if validity && @program == Pebble.newest
    # By default Pebble rejects one nonce in twenty, so counting orders would count attempts.
    @env = { "PEBBLE_VA_NOSLEEP" => "1", "PEBBLE_AUTHZREUSE" => "0", "PEBBLE_WFE_NONCEREJECT" => "0" }.merge(env)
    write_files(validity, eab, profiles)
    @pids = {}
    start_dns
  end

  # Starts the CA; otherwise only its DNS server runs.
  def start
    @pids[:ca] = Process.spawn(@env, @program, "-config", path("config.json"), "-dnsserver", "127.0.0.1:#{@dns}",
                               out: [log_path, "a"], err: %i[child out])
    wait_until("Pebble to listen", within: 30) { listens?(@port) }
    self
  end

  def stop
    end_process(:ca)
  end

  def finish
    stop
    end_process(:dns)
    FileUtils.remove_entry(@dir)
  end

  def directory
    "https://127.0.0.1:#{@port}/dir"
  end

  # The authority that signed its own certificate, for --acme-ca.
  def ca_file
    path("ca.pem")
  end

  def log
    File.exist?(log_path) ? File.read(log_path) : ""
  end

  # Its own certificate and key.
  def identity
    [OpenSSL::X509::Certificate.new(File.read(ca_file)), OpenSSL::PKey.read(File.read(path("key.pem")))]
  end

  # The number of orders that it has accepted, from its log.
  def orders
    log.scan(/There are now \d+ orders in the db/).size
  end

  # Sets the renewal window of +certificate+. For a new Pebble.
  def suggest_window(certificate, from, to)
    window = JSON.generate(suggestedWindow: { start: from.utc.iso8601, end: to.utc.iso8601 })
    body = JSON.generate(Certificate: certificate.to_pem, ARIResponse: window)
    response = http(@management).post("/set-renewal-info/", body)
    raise "Pebble answered #{response.code} #{response.body}" unless response.is_a?(Net::HTTPSuccess)
  end

  # Its response to a request for its directory.
  def directory_text
    https(@port, "/dir")
  end

  # The number of certificates that it has issued.
  def issued
    log.scan("Issued certificate serial").size
  end

  # The number of accounts that it has made.
  def accounts
    log.scan(/There are now \d+ accounts in memory/).size
  end

  # The root of the certificates that it issues.
  def root
    OpenSSL::X509::Certificate.new(https(@management, "/roots/0"))
  end

  # Sets the address to which names resolve.
  def resolve_to(address)
    dns_request("/set-default-ipv4", ip: address)
  end

  # A command that changes its DNS records.
  def dns_command
    path("dns")
  end

  # The arguments of the command's calls, one call per line.
  def dns_changes
    File.exist?(path("changes")) ? File.readlines(path("changes"), chomp: true) : []
  end

  private

  def path(name)
    File.join(@dir, name)
  end

  def log_path
    path("pebble.log")
  end

  def write_files(validity, eab, profiles)
    # Valid for decades, because some tests set clocks.
    cert, key = certificate(subject_alt_name: "IP:127.0.0.1,DNS:localhost", to: Time.now + (7_000 * 86_400))
    File.write(path("ca.pem"), cert.to_pem)
    File.write(path("key.pem"), key.to_pem)
    config = { listenAddress: "127.0.0.1:#{@port}", managementListenAddress: "127.0.0.1:#{@management}",
               certificate: path("ca.pem"), privateKey: path("key.pem"), httpPort: @http_port, tlsPort: @tls_port,
               ocspResponderURL: "", externalAccountBindingRequired: eab }
    config[:certificateValidityPeriod] = validity if validity
    config[:profiles] = profiles.transform_values { |seconds| { description: "for tests", validityPeriod: seconds } } if profiles
    config[:externalAccountMACKeys] = { EAB[:kid] => EAB[:hmac] } if eab
    File.write(path("config.json"), JSON.generate(pebble: config))
    write_dns_command
  end

  def write_dns_command
    File.write(path("dns"), <<~SH)
      #!/bin/sh
      echo "$@" >> #{path('changes')}
      case $1 in
        add) body="{\\"host\\":\\"$2.\\",\\"value\\":\\"$3\\"}" to=set-txt ;;
        remove) body="{\\"host\\":\\"$2.\\"}" to=clear-txt ;;
      esac
      exec curl -sf -d "$body" http://127.0.0.1:#{@dns_management}/$to
    SH
    File.chmod(0o755, path("dns"))
  end

  def start_dns
    @pids[:dns] = Process.spawn(Pebble.dns_server, *Pebble.dns_flags("127.0.0.1:#{@dns}"), "-management", "127.0.0.1:#{@dns_management}",
                                "-http01", "", "-https01", "", "-tlsalpn01", "", "-defaultIPv4", "127.0.0.1", "-defaultIPv6", "",
                                out: [path("dns.log"), "a"], err: %i[child out])
    wait_until("the DNS server", within: 30) { listens?(@dns_management) }
  end

  def dns_request(target, body)
    response = Net::HTTP.post(URI("http://127.0.0.1:#{@dns_management}#{target}"), JSON.generate(body))
    raise "the DNS server answered #{response.code}" unless response.is_a?(Net::HTTPSuccess)
  end

  def https(port, target)
    http(port).get(target).body
  end

  def http(port)
    http = Net::HTTP.new("127.0.0.1", port)
    http.use_ssl = true
    http.verify_mode = OpenSSL::SSL::VERIFY_NONE
    http
  end

  def listens?(port)
    Socket.tcp("127.0.0.1", port, connect_timeout: 1).close || true
  rescue SystemCallError
    false
  end

  def end_process(name)
    pid = @pids.delete(name) or return
    Process.kill("TERM", pid)
    Process.wait(pid)
  end
end
