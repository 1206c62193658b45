# frozen_string_literal: true

require "digest"
require "openssl"
require_relative "idle_loads"
require_relative "peers"
require_relative "protocol_loads"
require_relative "scenarios"
require_relative "sites"

module Bench
  # The cases of bench/protocols: TLS and HTTP/2, beside nginx and H2O.
  #
  # 1. Every server has the same certificate (P-256), one process and one thread, no access log.
  # 2. `scheme` is the URL's; `curl` are the flags that make curl speak the protocol, for the check before the load.
  module Protocols
    Case = Struct.new(:name, :scheme, :curl, :load, :path, :body, :peers, :wanted, :app, :redis, :metric, keyword_init: true) do
      def initialize(path: "/hello.txt", wanted: {}, redis: false, metric: :cpu, **rest) = super

      def shape = [1, 1]

      def pinned = true

      # Memory grows once.
      def apart = metric == :connection

      def backend = nil

      # The folder in which servers start.
      def folder(dir)
        return File.expand_path("../apps/#{app}", __dir__) if app

        site = File.join(dir, "site-protocols")
        Dir.mkdir(site) unless File.directory?(site)
        File.write(File.join(site, path), body)
        site
      end
    end

    FILES = { "hello.txt" => "Hello, World", "page.html" => Sites::PAGE, "kib.txt" => "0123456789abcdef" * 64 }.freeze
    LARGE = ("0123456789abcdef" * (100 << 16)).freeze

    # A certificate of P-256, signed by itself, and its key, as PEM.
    def self.pair
      @pair ||= begin
        key = OpenSSL::PKey::EC.generate("prime256v1")
        name = OpenSSL::X509::Name.parse("/CN=localhost")
        certificate = OpenSSL::X509::Certificate.new
        certificate.version = 2
        certificate.serial = 1
        certificate.subject = certificate.issuer = name
        certificate.public_key = key
        certificate.not_before = Time.now - 60
        certificate.not_after = Time.now + 86_400
        extensions = OpenSSL::X509::ExtensionFactory.new(certificate, certificate)
        certificate.add_extension(extensions.create_extension("subjectAltName", "DNS:localhost,IP:127.0.0.1"))
        certificate.sign(key, OpenSSL::Digest.new("SHA256"))
        { "cert.pem" => certificate.to_pem, "key.pem" => key.to_pem }
      end
    end

    FIREBRICK = "{firebrick} serve {home} --control off --front-threads 1 -q"
    PLAIN_BIND = "-b 'tcp://127.0.0.1:{port}?h2c=true'"
    TLS_BIND = "-b 'ssl://127.0.0.1:{port}?cert={home}/cert.pem&key={home}/key.pem'"
    TLS_NGINX = <<~CONF
      ssl_certificate {home}/cert.pem; ssl_certificate_key {home}/key.pem; ssl_protocols TLSv1.2 TLSv1.3;
      ssl_session_cache shared:tls:10m; ssl_session_timeout 1d; ssl_session_tickets on; ssl_ecdh_curve X25519:prime256v1;
    CONF
    FILES_NGINX = "sendfile on; tcp_nopush on; open_file_cache max=20000; open_file_cache_valid 60s; types { text/html html; text/plain txt; }"

    module_function

    def nginx(listen, tls: false, location: 'root "{dir}";')
      http = "#{TLS_NGINX if tls}#{FILES_NGINX} http2_max_concurrent_streams 256; server { listen 127.0.0.1:{port} #{listen}; #{location} }\n"
      Peer.new(command: "nginx -c {home}/nginx.conf", config: { "nginx.conf" => "#{Peers::NGINX}#{http}}\n", **(tls ? pair : {}) })
    end

    def h2o(tls: false, paths: '{ "/": { file.dir: "{dir}" } }', files: {})
      listen = tls ? "{port: {port}, host: 127.0.0.1, ssl: {certificate-file: {home}/cert.pem, key-file: {home}/key.pem}}" : "{port: {port}, host: 127.0.0.1}"
      Peer.new(command: "h2o -c {home}/h2o.yaml", config: { "h2o.yaml" => <<~YAML, **(tls ? pair : {}), **files })
        num-threads: 1
        max-connections: 20000
        http1-request-timeout: 600
        http2-idle-timeout: 600
        pid-file: {home}/h2o.pid
        #{"user: #{Peers::USER}" if Peers::USER}
        hosts:
          default:
            listen: #{listen}
            paths: #{paths}
      YAML
    end

    def caddy
      Peer.new(command: "caddy run --config {home}/Caddyfile --adapter caddyfile", config: { "Caddyfile" => <<~CADDY, **pair })
        {
          admin off
          auto_https off
          default_sni localhost
          storage file_system {home}/caddy
          log {
            level ERROR
          }
        }
        https://127.0.0.1:{port} {
          bind 127.0.0.1
          tls {home}/cert.pem {home}/key.pem
          root * {dir}
          file_server
        }
      CADDY
    end

    def firebrick(bind, content, **config)
      Peer.new(command: "#{FIREBRICK} #{bind} #{content}", config: config)
    end

    ROOT = "--root {dir}"
    IDLE = 4_000
    CURL = { "http1" => %w[--http1.1], "h2c" => %w[--http2-prior-knowledge], "h2" => %w[--http2] }.freeze

    def plain_files(names)
      { "h2o" => h2o, "nginx" => nginx("http2"), "firebrick" => firebrick(PLAIN_BIND, ROOT) }.slice(*names, "firebrick")
    end

    def encrypted_files(listen)
      { "h2o" => h2o(tls: true), "nginx" => nginx(listen, tls: true), "firebrick" => firebrick(TLS_BIND, ROOT, **pair) }
    end

    # Firebrick itself, over HTTP/2.
    def own_http2
      firebrick(TLS_BIND, ROOT, **pair).tap { |peer| peer.load = Loads::H2load.new(connections: 4, streams: 1) }
    end

    MRUBY = <<~'RUBY'
      lambda { |env| [200, { "content-type" => "text/plain" }, ["Hello, World"]] }
    RUBY

    def handlers
      { "h2o" => h2o(paths: '{ "/": { mruby.handler-file: "{home}/handler.rb" } }', files: { "handler.rb" => MRUBY }),
        "firebrick" => Peer.new(command: "#{FIREBRICK.sub('{home}', '{home}/handler.rb --mruby')} #{PLAIN_BIND}", config: { "handler.rb" => MRUBY }) }
    end

    RACK = "{firebrick} {dir} -w 1 -t 1:5 -e production --control off --front-threads 1 -q"
    # Both servers end with the shell.
    BOTH = <<~'SH'
      trap 'kill $puma $nginx' TERM
      puma -q -e production -t 5:5 -b "unix://{home}/puma.sock?backlog=4096" {dir}/config.ru & puma=$!
      until [ -S {home}/puma.sock ]; do sleep 0.1; done
      nginx -c {home}/nginx.conf & nginx=$!
      wait; wait
    SH

    # HTTP/2 to an app: compared with Firebrick itself over HTTP/1.1, and with nginx in front of Puma.
    def apps
      puma = nginx("http2", location: 'location / { proxy_pass http://puma; proxy_http_version 1.1; proxy_set_header Connection ""; }')
      config = puma.config.merge("both.sh" => BOTH)
      config["nginx.conf"] = config["nginx.conf"].sub("server {", "upstream puma { server unix:{home}/puma.sock; keepalive 64; } server {")
                                                 .sub("worker_connections 2048", "worker_connections 8192")
      { "http1.1" => Peer.new(command: "#{RACK} -b tcp://127.0.0.1:{port}", load: Loads::Wrk.new(connections: 64), curl: CURL["http1"]),
        "nginx+puma" => Peer.new(command: "sh {home}/both.sh", config: config),
        "firebrick" => Peer.new(command: "#{RACK} #{PLAIN_BIND}") }
    end

    def all
      [
        Case.new(name: "https-hello", scheme: "https", curl: CURL["http1"], load: Loads::Wrk.new(connections: 64), body: FILES["hello.txt"],
                 peers: encrypted_files("ssl"), wanted: { "nginx" => 0.9, "h2o" => 1.0 }),
        Case.new(name: "h2c-12", scheme: "http", curl: CURL["h2c"], load: Loads::H2load.new(connections: 64, streams: 32),
                 body: FILES["hello.txt"], peers: plain_files(%w[h2o nginx]), wanted: { "h2o" => 0.9, "nginx" => 0.25 }),
        Case.new(name: "h2c-4k", scheme: "http", curl: CURL["h2c"], load: Loads::H2load.new(connections: 64, streams: 32), path: "/page.html",
                 body: FILES["page.html"], peers: plain_files(%w[h2o nginx]), wanted: { "h2o" => 0.9, "nginx" => 0.25 }),
        Case.new(name: "h2-12", scheme: "https", curl: CURL["h2"], load: Loads::H2load.new(connections: 64, streams: 32),
                 body: FILES["hello.txt"], peers: encrypted_files("ssl http2"), wanted: { "h2o" => 0.9, "nginx" => 0.25 }),
        Case.new(name: "h2-4k", scheme: "https", curl: CURL["h2"], load: Loads::H2load.new(connections: 64, streams: 32), path: "/page.html",
                 body: FILES["page.html"], peers: encrypted_files("ssl http2"), wanted: { "h2o" => 0.9, "nginx" => 0.25 }),
        Case.new(name: "mruby-h2c", scheme: "http", curl: CURL["h2c"], load: Loads::H2load.new(connections: 64, streams: 32),
                 body: FILES["hello.txt"], peers: handlers, wanted: { "h2o" => 0.9 }),
        Case.new(name: "rack-h2c", scheme: "http", curl: CURL["h2c"], load: Loads::H2load.new(connections: 64, streams: 32), path: "/",
                 body: "Hello, World!", app: "hello", peers: apps, wanted: { "http1.1" => 0.6, "nginx+puma" => 0.15 }),
        # The check with curl uses TCP before the load, which counts only responses over QUIC.
        Case.new(name: "h3-1k", scheme: "https", curl: CURL["http1"], load: Loads::Http3.new(connections: 16, streams: 8), path: "/kib.txt",
                 body: FILES["kib.txt"], peers: { "caddy" => caddy, "firebrick" => firebrick(TLS_BIND, ROOT, **pair) }, wanted: { "caddy" => 0.5 }),
        Case.new(name: "handshakes", scheme: "https", curl: CURL["http1"], load: Loads::Handshakes.new(requests: 1_500, concurrency: 16),
                 body: FILES["hello.txt"], peers: encrypted_files("ssl"), wanted: { "nginx" => 0.77 }),
        Case.new(name: "tls-100m", scheme: "https", curl: CURL["http1"], load: Loads::Wrk.new(connections: 4), path: "/large.bin", body: LARGE,
                 peers: encrypted_files("ssl"), wanted: { "nginx" => 0.8 }),
        Case.new(name: "h3-100m", scheme: "https", curl: CURL["http1"], load: Loads::Http3.new(connections: 4, streams: 1), path: "/large.bin",
                 body: LARGE, peers: { "http2" => own_http2, "caddy" => caddy, "firebrick" => firebrick(TLS_BIND, ROOT, **pair) }, wanted: { "http2" => 1.3 }),
        Case.new(name: "idle-tls", scheme: "https", curl: CURL["http1"], load: Loads::IdleTls.new(connections: IDLE), body: FILES["hello.txt"],
                 peers: encrypted_files("ssl"), metric: :connection),
        Case.new(name: "idle-h2", scheme: "https", curl: CURL["h2"], load: Loads::IdleHttp2.new(connections: IDLE), body: FILES["hello.txt"],
                 peers: encrypted_files("ssl http2"), metric: :connection),
        *%w[tls1_2 tls1_3].map do |version|
          Case.new(name: "resumed-#{version}", scheme: "https", curl: CURL["http1"], load: Loads::Resumptions.new(version: version),
                   body: FILES["hello.txt"], peers: encrypted_files("ssl"), wanted: { "nginx" => 0.77 })
        end
      ]
    end
  end
end
