# frozen_string_literal: true

require_relative "check"
require_relative "disturbance"
require_relative "loads"
require_relative "peers"
require_relative "ratio"
require_relative "redis_server"
require_relative "rounds"
require_relative "server"

module Bench
  # Compares servers that all run at once: short slices of load in turn, the order reversed each round.
  #
  # Why: machines drift by 10 to 20 % within a minute. Slices of one or two seconds put both servers into the same minute, and
  # a ratio within a round cancels what they share. Servers of a scenario that is `apart` are started for their slice only.
  class Interleaved
    SERVER_CPU = 0
    LOAD_CPU = 1
    # Work that a server defers until after its last response counts, too.
    SETTLE_SECONDS = 0.05
    BACKEND_SHAPE = [1, 1].freeze
    # Memory is sampled during a load, at this share of its time.
    LATE = 0.8
    # Seconds; a load without a response is not repeated longer than this.
    LONGEST_SLICE = 16

    # failures: { name => Failure }; memory: { name => [PSS in MiB: at the start, then under load] }; killed: processes left over.
    attr_reader :rounds, :failures, :memory, :killed, :shape

    # peers: { name => Peer or command template }; pinned: servers on one processor, loads on another; tolerant: a server that fails is
    # left out from then on, see `failures`, and failed requests are counted; otherwise both raise a Failure. sized: memory under load is
    # measured too, in a separate slice.
    def initialize(scenario, peers, dir:, seconds:, rounds:, pinned: true, shape: nil, tolerant: false, sized: false)
      @scenario = scenario
      @peers = peers.transform_values { |peer| peer.is_a?(Peer) ? peer : Peer.new(command: peer) }
      @shape = shape || scenario.shape
      @pinned = pinned && scenario.pinned
      @setting = Loads::Setting.new(seconds: seconds, cpu: (LOAD_CPU if @pinned), dir: dir)
      @rounds = Rounds.new(rounds, scenario.metric)
      @tolerant = tolerant
      @sized = sized
      @folder = scenario.folder(dir)
      @servers = {}
      @failures = {}
      @memory = {}
      @killed = Hash.new(0)
    end

    # Measures; the block gets the name of a server and the number of the round before each slice.
    def run(&progress)
      @redis = RedisServer.new(@setting.dir, cpu: @setting.cpu) if @scenario.redis
      @backend = start_backend if @scenario.backend
      start_all unless @scenario.apart
      @rounds.measure { |number, disturbance| round(number, disturbance, &progress) unless left.empty? }
      left.each { |name| attempt(name) { remember_memory(name) } } if @sized && !@scenario.apart
      self
    ensure
      @servers.each_key.to_a.each { |name| stop(name) }
      @backend&.stop
      @redis&.stop
    end

    def names = @peers.keys

    # The scenario's metric of one server in relation to another one's.
    def ratio(name, base) = @rounds.ratio(name, base)

    # The scenario's metric of one server: its median and quartiles.
    def own(name) = @rounds.own(name)

    # CPU per request, microseconds: the median of the rounds.
    def cost(name) = @rounds.median(name, &:cpu_us)

    private

    # Names of the servers that have not failed.
    def left = @peers.keys - @failures.keys

    def attempt(name)
      yield
    rescue Failure => e
      raise unless @tolerant

      stop(name)
      @failures[name] = e
      nil
    end

    def round(number, disturbance)
      names = number.odd? ? left : left.reverse
      names.each_with_object({}) do |name, slices|
        yield name, number if block_given?
        slice = attempt(name) { @scenario.apart ? apart(name, disturbance) : slice(name, disturbance) }
        slices[name] = slice if slice
      end
    end

    def apart(name, disturbance)
      start(name)
      slice = slice(name, disturbance)
      @memory[name].push(pss(name))
      slice
    ensure
      stop(name)
    end

    def start_all
      left.each { |name| attempt(name) { start(name) } }
    end

    def start(name)
      peer = @peers.fetch(name)
      env = @redis ? { "REDIS_URL" => @redis.url } : {}
      server = new_server(name, peer, SERVER_CPU, env: env, values: { "backend" => @backend&.port })
      check = Check.of(@scenario, curl: peer.curl)
      @servers[name] = server.start(@folder, @shape) { |port| check.call(port) }
      (@memory[name] ||= []).push(pss(name))
      load_of(name).warm_up(url(name), @setting)
    end

    def stop(name)
      server = @servers.delete(name) or return
      @killed[name] += server.stop
    end

    def new_server(name, peer, cpu, **rest)
      home = File.join(@setting.dir, "home-#{@scenario.name}-#{name}")
      Server.new(peer.command, log: File.join(@setting.dir, "#{name}.log"), cpu: (cpu if @pinned), config: peer.config, home: home, **rest)
    end

    # On the load generator's processor; its CPU is not counted.
    def start_backend
      check = Check.of(@scenario)
      new_server("backend", @scenario.backend, LOAD_CPU).start(@folder, BACKEND_SHAPE) { |port| check.call(port) }
    end

    def load_of(name) = @peers.fetch(name).load || @scenario.load

    def url(name) = Check.of(@scenario).url(@servers.fetch(name).port)

    def pss(name) = @servers.fetch(name).tree.pss_mib

    def trees = [*@servers.values.map(&:tree), *@backend&.tree, *@redis&.tree]

    # One slice of load. Without a single response and without an error it was too short for this machine (100 MiB on a busy
    # processor): it is repeated, twice as long each time.
    def slice(name, disturbance, setting = @setting)
      tree = @servers.fetch(name).tree
      open = []
      began = Disturbance.read(trees)
      before = tree.cpu_seconds
      sample = load_of(name).run(url(name), setting) { |connections| open << [connections, tree.pss_mib] }
      sleep SETTLE_SECONDS
      cpu = tree.cpu_seconds - before
      disturbance.add(began, Disturbance.read(trees))
      if sample.requests.zero?
        return slice(name, disturbance, longer(setting)) if sample.errors.zero? && setting.seconds < LONGEST_SLICE

        raise Failure, "no request of the load got a response (#{sample.errors} errors)"
      end
      raise Failure, "#{sample.errors} requests failed" if sample.errors.positive? && !@tolerant

      Rounds::Slice.new(sample: sample, cpu_us: cpu * 1_000_000 / sample.requests, bytes: Loads::Idle.bytes(open))
    end

    def longer(setting) = setting.dup.tap { |copy| copy.seconds *= 2 }

    # After the rounds, because sampling takes processor time; with all connections open, because some servers free memory when
    # clients disconnect.
    def remember_memory(name)
      late = Thread.new { sleep(LATE * @setting.seconds) && pss(name) }
      load_of(name).run(url(name), @setting)
      @memory[name].push([late.value, pss(name)].max)
    ensure
      late&.kill
    end
  end
end
