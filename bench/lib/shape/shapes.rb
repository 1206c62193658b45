# frozen_string_literal: true

require_relative "../failure"

module Bench
  module Shape
    # Servers of fixed shapes, and one with an objective. For classes with ServedApp, that know the `@slice` of a measurement in seconds.
    module Shapes
      # Apps that wait, compute, and do both, for about 20 ms.
      APPS = {
        "wait" => "sleep(0.02)",
        "compute" => "compute(0.02)",
        "mix" => "compute(0.005); sleep(0.015)"
      }.freeze
      CLIENTS = 32
      # Seconds.
      OBJECTIVE = 0.2

      private

      def fixed(app, shape)
        server = serve(app, "-w {workers} -t {threads}:{threads}", shape)
        yield server.port
      ensure
        server&.stop
      end

      def with_objective(app)
        server = serve(app, "--slo p95<#{(OBJECTIVE * 1000).round}ms -w 1 -t 1", [1, 1])
        yield server
      ensure
        server&.stop
      end

      # The rate of users who do not pause.
      def closed(port) = load(port, "-c", CLIENTS.to_s, "--warm-up", "500ms").dig("summary", "rate_per_s")

      def load(port, *flags, seconds: @slice) = bench(port, "-d", "#{seconds}s", "--expect-status", "200", *flags)

      def control(app, command)
        text, error, status = Open3.capture3({ "XDG_RUNTIME_DIR" => @dir }, program, command, "--json", "--dir", app)
        raise Failure, "firebrick #{command}: #{error}" unless status.success?

        JSON.parse(text)
      end
    end
  end
end
