# frozen_string_literal: true

require_relative "../peers"
require_relative "../sites"
require_relative "stack"

module Bench
  module Shootout
    # The servers, each with the best configuration found in its manual or by measuring for the load here, and why.
    # This is printed with the results.
    module Contestants
      # layers: see Stack; needs: names of Programs; why: one line for readers.
      Contestant = Struct.new(:layers, :needs, :why, keyword_init: true)

      # nginx in front of an app: a connection per request to the app, or kept connections, whichever is better for it.
      # Kept ones are bad for Puma, whose processes accept as many connections as they get and leave the others idle (p99 of 900 ms
      # instead of 50); Unicorn keeps none.
      FRONT = <<~CONF
        upstream app { server unix:{socket} fail_timeout=0; %<upstream>s}
        server {
          listen 127.0.0.1:{port} backlog=4096;
          location / {
            proxy_pass http://app; %<location>sproxy_set_header Host $http_host; proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
          }
        }
      CONF
      SHORT = format(FRONT, upstream: "", location: "")
      KEPT = format(FRONT, upstream: "keepalive 64; ", location: 'proxy_http_version 1.1; proxy_set_header Connection ""; ')
      FRONTS = { "firebrick" => KEPT, "passenger" => KEPT, "puma" => SHORT, "unicorn" => SHORT }.freeze

      PASSENGER = "passenger start --engine=builtin -e production --max-pool-size {workers} --min-instances {workers} --max-request-queue-size 0 " \
                  "--log-level 0 --disable-turbocaching --disable-security-update-check --disable-anonymous-telemetry --no-install-runtime " \
                  "--instance-registry-dir {home} --pid-file {home}/passenger.pid --log-file {home}/passenger.log"
      PUMA = "puma -e production -w {cluster} -t {threads}:{threads} {preload}"
      # Its watchdog and a helper leave the session.
      PASSENGER_LAYER = { pid_files: %w[passenger.pid passenger-standalone.*/temp_dir_toucher.pid], env: { "TMPDIR" => "{home}" } }.freeze
      FIREBRICK = "{firebrick} -w {workers} -t {threads}:{threads} -e production -q --control off {dir}"
      WEBRICK = <<~RUBY
        require "webrick"
        server = WEBrick::HTTPServer.new(
          BindAddress: "127.0.0.1", Port: {port}, DocumentRoot: "{dir}", MaxClients: 1000, DoNotReverseLookup: true,
          AccessLog: [], Logger: WEBrick::Log.new(File::NULL, WEBrick::BasicLog::FATAL)
        )
        trap("TERM") { server.shutdown }
        server.start
      RUBY

      module_function

      # Fills in the path of Firebrick.
      def firebrick_command(setup, text) = text.sub("{firebrick}", setup.firebrick)

      # Servers of a directory of files.
      def files(setup)
        nginx = "sendfile on; tcp_nopush on; %sserver { listen 127.0.0.1:{port} backlog=4096; root \"{dir}\"; }\n"
        {
          "firebrick" => one("firebrick", Peer.new(command: firebrick_command(setup, Peers::STATIC["firebrick"].command)), [],
                             "one thread; no log, as with all others"),
          "nginx + open_file_cache" => one("nginx", Peers.nginx(format(nginx, "open_file_cache max=20000; open_file_cache_valid 60s; ")), %w[nginx],
                                           "its fastest: files stay open, changes are seen within 60 s"),
          "nginx" => one("nginx", Peers.nginx(format(nginx, "")), %w[nginx], "as most people run it: a file is opened for each request"),
          "h2o" => one("h2o", Peers::STATIC["h2o"], %w[h2o], "one thread; it keeps files open by itself"),
          "webrick" => one("webrick", Peer.new(command: "ruby {home}/webrick.rb", config: { "webrick.rb" => WEBRICK }), %w[ruby webrick],
                           "no logs, no reverse look-up, 1,000 clients at a time")
        }
      end

      # Servers of a Rack app, listening on a port.
      def bare(setup)
        tcp = "-b tcp://127.0.0.1:{port}"
        {
          "firebrick" => one("firebrick", firebrick(setup, tcp), [], "as it comes"),
          "puma" => one("puma", Peer.new(command: "#{PUMA} #{tcp}?backlog=4096"), %w[puma rack], "preloaded, fixed number of threads"),
          "unicorn" => one("unicorn", unicorn("127.0.0.1:{port}"), %w[unicorn rack], "preloaded; -N: no middleware of its own (a log, among others)"),
          "passenger" => detached("passenger", Peer.new(command: "#{PASSENGER} -a 127.0.0.1 -p {port}"), %w[passenger rack],
                                  "its own engine; all processes from the start, no limit of its queue, no cache of answers")
        }
      end

      # The same behind nginx, connected by a Unix socket.
      def behind_nginx(setup)
        back = {
          "firebrick" => [firebrick(setup, "-b unix://{socket}"), []],
          "puma" => [Peer.new(command: "#{PUMA} -b unix://{socket}?backlog=4096"), %w[puma rack]],
          "unicorn" => [unicorn("{socket}"), %w[unicorn rack]],
          "passenger" => [Peer.new(command: "#{PASSENGER} --socket {socket}"), %w[passenger rack]]
        }
        back.to_h do |name, (peer, needs)|
          layer = Stack::Layer.new(name: name, peer: peer, on_socket: true, **(name == "passenger" ? PASSENGER_LAYER : {}))
          front = Stack::Layer.new(name: "nginx", peer: Peers.nginx(FRONTS.fetch(name)))
          how = FRONTS.fetch(name) == KEPT ? "connections to it are kept" : "a connection per request, which it is better with"
          ["nginx + #{name}", Contestant.new(layers: [layer, front], needs: ["nginx", *needs], why: "one process of nginx in front, by Unix socket; #{how}")]
        end
      end

      def firebrick(setup, bind) = Peer.new(command: firebrick_command(setup, "#{FIREBRICK} #{bind}"))

      def unicorn(bind)
        Peer.new(command: "unicorn -N -E production -c {home}/unicorn.rb", config: { "unicorn.rb" => <<~RUBY })
          worker_processes {workers}
          preload_app true
          listen "#{bind}", backlog: 4096
        RUBY
      end

      def one(name, peer, needs, why, env: {})
        Contestant.new(layers: [Stack::Layer.new(name: name, peer: peer, env: env)], needs: needs, why: why)
      end

      def detached(name, peer, needs, why)
        Contestant.new(layers: [Stack::Layer.new(name: name, peer: peer, **PASSENGER_LAYER)], needs: needs, why: why)
      end

      # { title => text } for readers: the command lines and files of all layers.
      def written_down(contestant)
        contestant.layers.each_with_object("why" => contestant.why) do |layer, texts|
          env = layer.env.map { |key, value| "#{key}=#{value} " }.join
          texts[layer.name] = "#{env}#{layer.peer.command.sub(%r{\A\S*/(?=(firebrick|iodine|h2o)[^/\s]*\s)}, '').gsub("#{Setup::ROOT}/", '')}"
          layer.peer.config.each { |file, text| texts["#{layer.name}: #{file}"] = text }
        end
      end
    end
  end
end
