# frozen_string_literal: true

require_relative "stack"

module Bench
  module Shootout
    # The size of a measurement. Times in seconds.
    Size = Struct.new(:rounds, :siege, :timed, :ab_requests, :repeats, :shapes, :sleepers, :threads, :sleep, :connections, :stall, :stall_every,
                      keyword_init: true) do
      # The published size.
      def self.full
        new(rounds: 3, siege: 60, timed: 5, ab_requests: 10_000, repeats: 20, shapes: %w[1x1 1x10 1x100 2x1 2x10 10x1 10x10], sleepers: 100_000,
            threads: 10_000, sleep: 10, connections: 10_000, stall: 20, stall_every: 10)
      end

      # A quick check of everything, with rough figures.
      def self.quick
        new(rounds: 1, siege: 4, timed: 2, ab_requests: 3_000, repeats: 4, shapes: %w[1x10 2x10 10x1], sleepers: 20_000,
            threads: 2_000, sleep: 3, connections: 2_000, stall: 10, stall_every: 5)
      end

      # rounds and seconds: from the command line, nil if not given. seconds: of the siege; nothing else takes longer.
      def with(rounds:, seconds:)
        changed = dup
        changed.rounds = rounds if rounds
        return changed unless seconds

        changed.siege = seconds
        changed.timed = [timed, seconds].min
        changed.sleep = [sleep, seconds].min
        changed.stall = [stall, seconds * 2].min
        changed.stall_every = [stall_every, changed.stall / 2.0].min
        changed
      end
    end

    # The setting of scenarios: size, directory, processors, Firebrick binary.
    #
    # Servers run on processor 0, load generators and Redis on processor 1; both on any where a scenario says so or the machine
    # has only one.
    class Setup
      SERVER_CPU = 0
      LOAD_CPU = 1
      SETTLE_SECONDS = 0.1
      ROOT = File.expand_path("../../..", __dir__)

      attr_reader :size, :dir, :firebrick, :iodine, :h2o_head

      # dir: a directory for temporary files.
      def initialize(size, dir, env: ENV)
        @size = size
        @dir = dir
        @pin = Etc.nprocessors > 1
        @firebrick = File.expand_path(env.fetch("FIREBRICK") { File.join(ROOT, "target/dist/firebrick") })
        @h2o_head = env["H2O_HEAD"]&.then { |path| File.expand_path(path) }
        @iodine = Peers.iodine(env)
      end

      def pinned? = @pin

      def generator(seconds, pinned: true)
        Loads::Setting.new(seconds: seconds, cpu: (LOAD_CPU if pinned && @pin), dir: @dir)
      end

      def app(name) = File.join(ROOT, "bench/apps", name)

      def target(dir, shape, expected, pinned: true, env: {}, placeholders: {})
        Stack::Target.new(dir: dir, shape: shape, expected: expected, cpu: (SERVER_CPU if pinned && @pin), env: env, work: @dir, placeholders: placeholders)
      end

      # Starts the layers, has the generator load them, and returns the figures. The block may warm them up first.
      def measure(layers, target, generator, setting)
        stack = Stack.new(layers, target)
        stack.start
        yield stack if block_given?
        figures = loaded(stack, generator, setting)
        figures.merge(killed: stack.stop)
      ensure
        stack&.stop
      end

      # CPU seconds of exited children, which load generators are.
      def self.children = Process.times.then { |times| times.cutime + times.cstime }

      private

      def loaded(stack, generator, setting)
        server = stack.cpu_seconds
        own = self.class.children
        begun = Process.clock_gettime(Process::CLOCK_MONOTONIC)
        sample = generator.run(stack.url, setting)
        elapsed = Process.clock_gettime(Process::CLOCK_MONOTONIC) - begun
        own = self.class.children - own
        sleep SETTLE_SECONDS
        server = stack.cpu_seconds - server
        raise Failure, "no request of the load got a response (#{sample.errors} errors)" if sample.requests.zero?

        figures(sample, server, own, elapsed).merge(pss: stack.pss_mib)
      end

      # Percentiles in ms, CPU in microseconds per request, memory in MiB; busy: the load generator's share of one processor:
      # near 1 the generator was the limit.
      def figures(sample, server, own, elapsed)
        { requests: sample.requests, seconds: sample.seconds, errors: sample.errors, elapsed: elapsed,
          rate: (sample.requests / sample.seconds if sample.seconds&.positive?), cpu_us: server * 1e6 / sample.requests,
          generator_us: own * 1e6 / sample.requests, busy: own / elapsed, **sample.to_h.slice(:p50, :p95, :p99, :filled, :longest) }
      end
    end
  end
end
