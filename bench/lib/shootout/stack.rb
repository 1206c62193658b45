# frozen_string_literal: true

require "digest"
require "net/http"
require "socket"
require_relative "../failure"
require_relative "../process_tree"
require_relative "../server"

module Bench
  module Shootout
    # A server, or one behind another, as a unit: started back to front, with the cost added up.
    #
    # 1. `layers` are in order from back to front: each is a Layer. All have `{socket}`, the path of a Unix socket between them.
    # 2. Processes that leave the session of the command that started them are found by their `pid_files` (patterns, in
    #    `{home}`), and their trees count, too. Such a layer has `{home}` as its TMPDIR.
    # 3. `stop` stops every layer, front first, and returns how many processes had to be killed. An Interrupt does not stop it.
    class Stack
      # name: for its directory; peer: command and files; pid_files: see above; on_socket: listens on {socket} instead of
      # {port}; env: may have {home} in its values.
      Layer = Struct.new(:name, :peer, :pid_files, :on_socket, :env, keyword_init: true) do
        def initialize(env: {}, pid_files: [], **rest) = super
      end

      # The correct response: path, bytes and SHA-256.
      Expected = Struct.new(:path, :bytes, :sha256) do
        def self.of(body, path = "/") = new(path, body.bytesize, Digest::SHA256.hexdigest(body))
      end

      # Where the app is and its correct response; shape: [workers, threads]; cpu: the processor of all, nil: any;
      # placeholders: additional ones, { name => value }.
      Target = Struct.new(:dir, :shape, :expected, :cpu, :env, :work, :placeholders, keyword_init: true)

      def initialize(layers, target)
        @layers = layers
        @target = target
        @servers = []
        @socket = File.join(target.work, "app.sock")
      end

      def start
        @layers.each { |layer| start_layer(layer) }
        self
      end

      def port = @servers.last[1].port

      def url = "http://127.0.0.1:#{port}#{@target.expected.path}"

      def cpu_seconds = trees.sum(&:cpu_seconds)

      def pss_mib = trees.sum(&:pss_mib)

      def stop
        Thread.handle_interrupt(Interrupt => :never) do
          killed = @servers.reverse.sum { |layer, server| stop_layer(layer, server) }
          @servers.clear
          File.delete(@socket) if File.exist?(@socket)
          killed
        end
      end

      private

      def start_layer(layer)
        server = Server.new(layer.peer.command, log: File.join(@target.work, "#{layer.name}.log"), cpu: @target.cpu, config: layer.peer.config,
                                                home: home(layer), env: env(layer), values: { "socket" => @socket, **@target.placeholders.to_h })
        @servers << [layer, server]
        server.start(@target.dir, @target.shape) { |port| layer.on_socket ? listening? : right?(port) }
      end

      def home(layer) = File.join(@target.work, "home-#{layer.name}")

      def env(layer)
        @target.env.to_h.merge(layer.env.transform_values { |value| value.sub("{home}", home(layer)) })
      end

      def trees
        @servers.flat_map { |layer, server| [server.tree, *detached(layer)] }
      end

      def detached(layer)
        Dir.glob(layer.pid_files, base: home(layer)).filter_map do |file|
          ProcessTree.new(Integer(File.read(File.join(home(layer), file))))
        rescue Errno::ENOENT, ArgumentError
          nil
        end
      end

      # Its command is asked to stop everything; processes left then get TERM, and then KILL.
      def stop_layer(layer, server)
        server.stop + strays(layer).sum { |tree| stop_tree(tree) }
      end

      # Processes that have left the session, with or without a pid file: identified by their directory for temporary files.
      def strays(layer)
        return [] if layer.pid_files.empty?

        mark = "TMPDIR=#{home(layer)}\0"
        Dir["/proc/[0-9]*/environ"].filter_map do |path|
          ProcessTree.new(Integer(path[/\d+/])) if File.binread(path).include?(mark)
        rescue SystemCallError
          nil
        end
      end

      def stop_tree(tree)
        return 0 if tree.living.empty?

        Process.kill(:TERM, tree.root)
        deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + Server::STOP_SECONDS
        sleep 0.05 until tree.living.empty? || Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline
        tree.kill
      rescue Errno::ESRCH
        0
      end

      def listening?
        UNIXSocket.open(@socket, &:close)
        true
      rescue Errno::ENOENT
        false
      end

      # True if the response is correct; a wrong one is a Failure, because a wrong response could be the fastest. While the app is
      # starting, its server may respond with 5xx: that is waited for.
      def right?(port)
        expected = @target.expected
        response = Net::HTTP.start("127.0.0.1", port, read_timeout: 30) { |http| http.get(expected.path, "Accept-Encoding" => "identity") }
        return false if response.code.start_with?("5")
        return true if response.code == "200" && response.body.bytesize == expected.bytes && Digest::SHA256.hexdigest(response.body) == expected.sha256

        raise Failure, "wrong response: status #{response.code}, #{response.body.bytesize} bytes; expected 200, #{expected.bytes} bytes, SHA-256 #{expected.sha256}"
      rescue Net::ReadTimeout, Net::HTTPBadResponse => e
        raise Failure, "no correct response: #{e.class}: #{e.message}"
      end
    end
  end
end
