# frozen_string_literal: true

require "etc"
require_relative "machine"

module Bench
  # The way to start a server: its command line, and configuration files (name => text) that are first written into its own
  # directory `{home}`. Both have placeholders, see Server.command. `load` and `curl`: for a server that is measured in another protocol
  # than the others of its scenario.
  Peer = Struct.new(:command, :config, :load, :curl, keyword_init: true) do
    def initialize(config: {}, **rest) = super
  end

  # The servers of scenarios without an app: one process and one thread each, no access log, connections kept as long as the
  # load lasts, and the settings that their manuals recommend for speed.
  module Peers
    # The user of servers started by root; their default user may not be able to read the bench's directory.
    USER = Process.uid.zero? ? Etc.getpwuid(0).name : nil
    FIREBRICK = "{firebrick} serve {home} -p {port} --control off --front-threads 1 -q"

    # Paths that nginx would otherwise place where only root may write.
    NGINX = <<~CONF.freeze
      daemon off; worker_processes 1; worker_rlimit_nofile 20000; #{"user #{USER};" if USER}
      pid {home}/nginx.pid; error_log {home}/error.log;
      events { worker_connections 10000; }
      http {
        access_log off; keepalive_requests 1000000000; keepalive_timeout 600s;
        client_body_temp_path {home}/body; proxy_temp_path {home}/proxy; fastcgi_temp_path {home}/fastcgi;
        uwsgi_temp_path {home}/uwsgi; scgi_temp_path {home}/scgi;
        types { text/html html; application/octet-stream bin; }
    CONF

    def self.nginx(http) = Peer.new(command: "nginx -c {home}/nginx.conf", config: { "nginx.conf" => "#{NGINX}#{http}}\n" })

    # H2O with the files that its configuration needs; `paths` is the configuration of its paths, as YAML on one line.
    def self.h2o(paths, program: "h2o", files: {})
      Peer.new(command: "#{program} -c {home}/h2o.yaml", config: { "h2o.yaml" => <<~YAML, **files })
        num-threads: 1
        max-connections: 20000
        pid-file: {home}/h2o.pid
        #{"user: #{USER}" if USER}
        hosts:
          default:
            listen: {port: {port}, host: 127.0.0.1}
            paths: #{paths}
      YAML
    end

    # H2O with an mruby handler.
    def self.h2o_mruby(handler, program: "h2o")
      h2o('{ "/": { mruby.handler-file: "{home}/handler.rb" } }', program: program, files: { "handler.rb" => handler })
    end

    # The command of iodine, which Debian does not have: IODINE, or the one on the PATH; nil without either.
    def self.iodine(env = ENV) = env["IODINE"] || ("iodine" if Machine.there?("iodine"))

    # The servers with which apps are compared; a scenario's `beside` names them. Those that are not installed are nil.
    def self.apps(env = ENV)
      iodine = iodine(env)
      { "puma" => Peer.new(command: PUMA),
        "iodine" => iodine && Peer.new(command: "#{iodine} -b 127.0.0.1 -p {port} -t {threads} -w {workers} {dir}/config.ru"),
        "unicorn" => Peer.new(command: "unicorn -l 127.0.0.1:{port} -c {home}/unicorn.rb -E production {dir}/config.ru",
                              config: { "unicorn.rb" => "worker_processes {workers}\npreload_app true\n" }) }
    end

    PUMA = "puma -b tcp://127.0.0.1:{port} -w {cluster} -t {threads}:{threads} -e production {preload}"

    HELLO_HANDLER = <<~RUBY
      Proc.new do |env|
        [200, { "content-type" => "text/plain" }, ["Hello, World!"]]
      end
    RUBY
    FIREBRICK_MRUBY = "{firebrick} serve {home}/handler.rb --mruby -p {port} --control off --front-threads 1 -q"

    # The same handler inside both.
    MRUBY = {
      "firebrick" => Peer.new(command: FIREBRICK_MRUBY, config: { "handler.rb" => HELLO_HANDLER }),
      "h2o" => h2o_mruby(HELLO_HANDLER)
    }.freeze

    STATIC = {
      "firebrick" => Peer.new(command: "#{FIREBRICK} --root {dir}"),
      "h2o" => h2o('{ "/": { file.dir: "{dir}" } }'),
      "nginx" => nginx(<<~CONF)
        sendfile on; tcp_nopush on; open_file_cache max=20000; open_file_cache_valid 60s;
        server { listen 127.0.0.1:{port}; root "{dir}"; }
      CONF
    }.freeze

    PROXIES = {
      "firebrick" => Peer.new(command: FIREBRICK, config: {
                                "static.json" => %({"proxies": {"/": {"origin": "http://127.0.0.1:{backend}"}}}\n)
                              }),
      "nginx" => nginx(<<~CONF),
        upstream backend { server 127.0.0.1:{backend}; keepalive 64; keepalive_requests 1000000000; }
        server {
          listen 127.0.0.1:{port};
          location / { proxy_pass http://backend; proxy_http_version 1.1; proxy_set_header Connection ""; }
        }
      CONF
      # The result of a one-line configuration: HTTP/1.0, a connection for each request.
      "nginx-plain" => nginx(<<~CONF)
        server { listen 127.0.0.1:{port}; location / { proxy_pass http://127.0.0.1:{backend}; } }
      CONF
    }.freeze

    # The backend of the proxies: the body comes from the configuration, no file is read.
    BACKEND_BODY = "#{'0123456789abcde ' * 64}\n".freeze
    BACKEND = nginx(%(server { listen 127.0.0.1:{port}; default_type text/plain; return 200 "#{BACKEND_BODY}"; }\n))
  end
end
