# frozen_string_literal: true

require_relative "../apps/listing/page"
require_relative "peers"
require_relative "protocols"

module Bench
  # The cases of bench/pages: a page of 30 KB of a Rack app, sent plain, compressed, and from a cache. Beside Firebrick: Puma with Rack::Deflater, nginx
  # in front of Puma (gzip, proxy_cache), and Thruster in front of Puma (THRUSTER=PATH of the program, built from its source).
  #
  # Every server runs the app with one worker and five threads.
  module Pages
    BODY = Listing::PAGE
    FIREBRICK = "{firebrick} serve -b tcp://127.0.0.1:{port} -w 1 -t 5 --control off --front-threads 1 -q"
    PUMA = "puma -b %s -w 0 -t 5:5 -e production"
    CONNECTIONS = 16

    # nginx in front of Puma, on a Unix socket. Both are children of the shell.
    def self.nginx(http, env: "")
      server = <<~CONF
        #{http}
        upstream app { server unix:{home}/app.sock; keepalive 16; }
        server { listen 127.0.0.1:{port}; location / { proxy_pass http://app; proxy_http_version 1.1; proxy_set_header Connection ""; } }
      CONF
      puma = format(PUMA, "unix://{home}/app.sock")
      Peer.new(command: %(sh -c "#{env} #{puma} & exec nginx -c {home}/nginx.conf"), config: { "nginx.conf" => "#{Peers::NGINX}#{server}}\n" })
    end

    def self.thruster(env = "", program: ENV.fetch("THRUSTER", nil))
      return unless program

      ports = "HTTP_PORT={port} TARGET_PORT=$(({port} + 10000))"
      Peer.new(command: %(sh -c "#{env} #{ports} LOG_REQUESTS=0 exec #{program} #{format(PUMA, 'tcp://127.0.0.1:$(({port} + 10000))')}"))
    end

    def self.served(before = "", after = "") = Peer.new(command: [before, FIREBRICK, after].reject(&:empty?).join(" "))

    def self.page(name, coding, peers, wanted)
      headers = coding ? { "Accept-Encoding" => coding } : {}
      # -f: a proxy is up before its app.
      curl = ["-f", *(["--compressed", "-H", "Accept-Encoding: #{coding}"] if coding)]
      peers = peers.compact
      Protocols::Case.new(name: name, scheme: "http", curl: curl, load: Loads::Wrk.new(connections: CONNECTIONS, headers: headers), path: "/page.html",
                          body: BODY, peers: peers, wanted: wanted, app: "listing")
    end

    GZIP = "gzip on; gzip_proxied any;"
    CACHE = "proxy_cache_path {home}/cache keys_zone=kept:10m; proxy_cache kept;"
    ZSTD_PEER = Loads::Wrk.new(connections: CONNECTIONS, headers: { "Accept-Encoding" => "gzip" })

    # Puma with Rack::Deflater, which knows gzip only.
    def self.deflater(**rest) = Peer.new(command: "env DEFLATE=1 #{format(PUMA, 'tcp://127.0.0.1:{port}')}", **rest)

    # The same page as a file.
    def self.file = Peer.new(command: Peers::FIREBRICK, config: { "page.html" => BODY, "static.json" => '{ "root": "." }' })

    def self.kept(packed)
      nginx = nginx(packed ? "#{GZIP} #{CACHE}" : CACHE, env: "KEPT=1")
      thruster = thruster(packed ? "KEPT=1" : "KEPT=1 GZIP_COMPRESSION_ENABLED=0")
      { "firebrick" => served("env KEPT=1", "--cache 64MiB"), "file" => file, "nginx" => nginx, "thruster" => thruster }
    end

    def self.all
      puma = Peer.new(command: format(PUMA, "tcp://127.0.0.1:{port}"))
      wanted = { "file" => 1.1, "nginx" => 0.65, "thruster" => 0.12 }
      packed = { "firebrick" => served, "deflater" => deflater, "nginx" => nginx(GZIP), "thruster" => thruster("CACHE_SIZE=0") }
      [page("plain", nil, { "firebrick" => served, "puma" => puma }, {}),
       page("gzip", "gzip", packed, { "deflater" => 0.45, "nginx" => 0.8 }),
       page("zstd", "zstd", { "firebrick" => served, "deflater" => deflater(load: ZSTD_PEER) }, { "deflater" => 0.225 }),
       page("kept", nil, kept(false), wanted),
       page("kept-gzip", "gzip", kept(true), wanted)]
    end
  end
end
