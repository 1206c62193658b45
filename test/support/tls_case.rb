# frozen_string_literal: true

# The base of the TLS tests: certificates, servers that use them, clients that send names.

require "support/case"
require "support/certificates"
require "support/tls_connection"

class TlsCase < Case
  include Certificates

  ENV_APP = <<~'RUBY'
    run lambda { |env|
      wanted = env.select { |key, _| key.match?(/SSL|HTTPS|url_scheme|SERVER_PORT/) }
      [200, { "content-type" => "text/plain" }, wanted.map { |key, value| "#{key}=#{value.inspect}\n" }]
    }
  RUBY
  HELLO = %(run ->(_) { [200, { "content-type" => "text/plain" }, ["hello"]] }\n)

  def setup
    firebrick_only
  end

  # Files for a server: NAME.pem and NAME.key for each name; the certificate is for +hosts+.
  def pair(name, *hosts, **options)
    alternatives = hosts.map { |host| host.match?(/\A[\d.:]+\z/) ? "IP:#{host}" : "DNS:#{host}" }.join(",")
    cert, key = certificate(subject_alt_name: alternatives.empty? ? "IP:127.0.0.1" : alternatives, name: name, **options)
    { "#{name}.pem" => cert.to_pem, "#{name}.key" => key.to_pem }
  end

  # A server with one address that speaks TLS and the certificate "own".
  def secure(app: HELLO, options: "", files: {}, pem: pair("own", "localhost", "127.0.0.1"), **rest)
    start(app:, files: pem.merge(files), binds: ["ssl://127.0.0.1:0?cert=own.pem&key=own.key#{options}"], **rest)
  end

  def dial(own, **options)
    TlsConnection.new(own.address, **options).tap { |connection| @connections << connection }
  end

  def fetch(own, path = "/", headers = {}, **options)
    connection = dial(own, **options)
    connection.write(request("GET", path, headers))
    connection.read_response
  ensure
    connection&.close
  end

  # Returns the error of the handshake; with TLS 1.3 the client may see it only in its first read.
  def refusal(own, **options)
    connection = dial(own, **options)
    connection.write(request("GET", "/"))
    raise Minitest::Assertion, "the handshake succeeded" unless connection.socket.read(1).nil?

    "closed"
  rescue OpenSSL::SSL::SSLError, SystemCallError => e
    e.message
  end

  # Replaces a file atomically.
  def put(own, name, text)
    File.binwrite(own.path("#{name}.new"), text)
    File.rename(own.path("#{name}.new"), own.path(name))
  end
end
