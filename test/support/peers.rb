# frozen_string_literal: true

# Other servers that run the same tests, to check the tests themselves: TEST_SERVER=nginx, h2o or haproxy. Each has
# the configuration that its manual recommends, and its own directory.

require "fileutils"
require "socket"
require "tmpdir"
require "support/clock"

module Peers
  # The interface that tests use, and the parts that all peers share.
  class Peer
    include Clock

    attr_reader :base, :dir, :pid, :port

    # files:: prepare:: as in SiteServer. proxies:: path prefix => port of a backend on 127.0.0.1.
    # All other options concern only Firebrick and are ignored.
    def initialize(files: {}, prepare: nil, proxies: {}, **)
      @base = File.realpath(Dir.mktmpdir("firebrick-peer"))
      @dir = File.join(@base, "app")
      @proxies = proxies
      @port = TCPServer.open("127.0.0.1", 0) { |free| free.local_address.ip_port }
      FileUtils.mkdir_p(@dir)
      files.each do |name, content|
        FileUtils.mkdir_p(File.dirname(path(name)))
        File.binwrite(path(name), content)
      end
      prepare&.call(@dir)
    end

    def start
      File.write(File.join(@base, "peer.conf"), configuration)
      @pid = Process.spawn(*command, chdir: @base, in: File::NULL, out: log, err: log)
      wait_until("#{command.first} listens") { listening? }
      self
    end

    def address
      ["127.0.0.1", @port]
    end

    def path(name)
      File.join(@dir, name)
    end

    def url(path = "/")
      "http://127.0.0.1:#{@port}#{path}"
    end

    def stderr
      File.exist?(log) ? File.binread(log).force_encoding("UTF-8").scrub : ""
    end

    def report
      "#{command.first} in #{@base}\n#{stderr.lines.last(20).join}"
    end

    def finish
      return [] unless @pid

      Process.kill("TERM", @pid)
      unless wait_until(within: 5) { Process.wait(@pid, Process::WNOHANG) }
        Process.kill("KILL", @pid)
        Process.wait(@pid)
      end
      @pid = nil
      FileUtils.remove_entry(@base)
      []
    end

    private

    def log
      File.join(@base, "peer.log")
    end

    def listening?
      raise Minitest::Assertion, report if Process.wait(@pid, Process::WNOHANG)

      TCPSocket.new("127.0.0.1", @port).close
      true
    rescue Errno::ECONNREFUSED
      false
    end
  end

  class Nginx < Peer
    private

    def command
      ["/usr/sbin/nginx", "-p", @base, "-c", File.join(@base, "peer.conf"), "-g", "daemon off;"]
    end

    # Directives for `http`: nginx's default directories are in /var/lib.
    def temporary_folders
      %w[client_body proxy fastcgi uwsgi scgi].map { |name| "#{name}_temp_path #{@base}/#{name};" }.join(" ")
    end

    def configuration
      <<~CONF
        user root; worker_processes 1; pid #{@base}/nginx.pid; error_log #{log};
        events { worker_connections 1024; }
        http {
          #{temporary_folders}
          include /etc/nginx/mime.types; default_type application/octet-stream; charset utf-8; access_log off;
          sendfile on; server_tokens off; absolute_redirect off; max_ranges 32; if_modified_since before;
          gzip on; gzip_static on; gzip_vary on; gzip_min_length 512; gzip_proxied any;
          gzip_types text/plain text/css application/json application/javascript text/xml application/xml image/svg+xml;
          server {
            listen 127.0.0.1:#{@port} backlog=1024;
            root #{@dir}/public_html; error_page 404 /errors/404.html; disable_symlinks on from=$document_root;
            location ~ /\\.(?!well-known/) { return 404; }
            #{@proxies.map { |prefix, port| proxy(prefix, port) }.join("\n    ")}
          }
        }
      CONF
    end

    def proxy(prefix, port)
      "location #{prefix}/ { proxy_pass http://127.0.0.1:#{port}/; proxy_http_version 1.1; proxy_set_header Connection \"\"; " \
        "proxy_connect_timeout 1s; proxy_read_timeout 1s; proxy_send_timeout 1s; client_max_body_size 0; gzip off; }"
    end
  end

  class H2o < Peer
    private

    def command
      ["/usr/bin/h2o", "-c", File.join(@base, "peer.conf")]
    end

    def configuration
      <<~YAML
        user: root
        num-threads: 1
        pid-file: #{@base}/h2o.pid
        error-log: #{log}
        listen: { host: 127.0.0.1, port: #{@port} }
        compress: { gzip: 6, br: 5 }
        compress-minimum-size: 512
        file.send-compressed: ON
        file.etag: ON
        hosts:
          "*":
            paths:
              "/":
                file.dir: #{@dir}/public_html
                error-doc: [{ status: 404, url: /errors/404.html }]
      YAML
    end
  end

  class Haproxy < Peer
    private

    def command
      ["/usr/sbin/haproxy", "-db", "-f", File.join(@base, "peer.conf")]
    end

    def configuration
      names = @proxies.keys.to_h { |prefix| [prefix, prefix.delete_prefix("/").gsub(/\W/, "_")] }
      <<~CONF
        global
          log stderr format raw local0
        defaults
          mode http
          timeout connect 1s
          timeout client 30s
          timeout server 1s
          timeout tunnel 30s
          option forwardfor
        frontend in
          bind 127.0.0.1:#{@port}
          #{names.map { |prefix, name| "use_backend #{name} if { path_beg #{prefix}/ }" }.join("\n  ")}
        #{names.map { |prefix, name| backend(prefix, name) }.join}
      CONF
    end

    def backend(prefix, name)
      <<~CONF
        backend #{name}
          http-request replace-path #{prefix}/(.*) /\\1
          server one 127.0.0.1:#{@proxies[prefix]}
      CONF
    end
  end

  KINDS = { "nginx" => Nginx, "h2o" => H2o, "haproxy" => Haproxy }.freeze

  # The class of the peer to test; nil for Firebrick.
  def self.chosen
    KINDS[ENV.fetch("TEST_SERVER", nil)]
  end
end
