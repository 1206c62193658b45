# frozen_string_literal: true

require "digest"
require "net/http"
require_relative "loads"
require_relative "redis_server"
require_relative "server"

module Bench
  # The figures of one server in one round. CPU in milliseconds per request, PSS in MiB.
  Result = Struct.new(:sample, :cpu_ms, :pss, :pss_start, :killed, keyword_init: true) do
    def rate = sample.seconds&.positive? ? sample.requests / sample.seconds : nil
  end

  # Measures one scenario: every server in turn, round after round (A B A B …), each from a fresh start.
  class Comparison
    SERVER_CPU = 0
    LOAD_CPU = 1
    # Work that a server defers until after its last response counts, too.
    SETTLE_SECONDS = 0.1
    BACKEND_SHAPE = [1, 1].freeze
    # Memory is sampled during a load, at this fraction of its time.
    LATE = 0.8

    def initialize(scenario, options, dir)
      @scenario = scenario
      @options = options
      @dir = dir
      @pinned = options.pin && scenario.pinned
      @servers = options.servers_for(scenario)
      @folder = scenario.folder(dir)
    end

    def shape = (@options.shape unless @scenario.peers) || @scenario.shape

    # Returns { server name => [Result or Failure per round] }; the block gets the name before each measurement.
    def run
      redis = RedisServer.new(@dir, cpu: (LOAD_CPU if @pinned)) if @scenario.redis
      backend = start_backend if @scenario.backend
      env = redis ? { "REDIS_URL" => redis.url } : {}
      results = @servers.transform_values { [] }
      @options.rounds.times do |round|
        @servers.each do |name, peer|
          yield name, round + 1
          results[name] << attempt(server(name, peer, env: env, values: { "backend" => backend&.port }))
        end
      end
      results
    ensure
      redis&.stop
      backend&.stop
    end

    private

    def server(name, peer, cpu: SERVER_CPU, **rest)
      Server.new(peer.command, log: File.join(@dir, "#{name}.log"), cpu: (cpu if @pinned), config: peer.config,
                               home: File.join(@dir, "home-#{@scenario.name}-#{name}"), **rest)
    end

    # The backend of the proxies, on the load generator's processor; its CPU is not counted.
    def start_backend
      backend = server("backend", @scenario.backend, cpu: LOAD_CPU)
      backend.start(@folder, BACKEND_SHAPE) { |port| check(port) }
    rescue Failure
      backend&.stop
      raise
    end

    def attempt(server)
      result = measure(server)
      result.killed = server.stop
      result
    rescue Failure => e
      e
    ensure
      server&.stop
    end

    def measure(server)
      server.start(@folder, shape) { |port| check(port) }
      pss_start = server.tree.pss_mib
      url = "http://127.0.0.1:#{server.port}#{@scenario.path}"
      setting = Loads::Setting.new(seconds: @options.seconds, cpu: (LOAD_CPU if @pinned), dir: @dir)
      @scenario.load.warm_up(url, setting)
      before = server.tree.cpu_seconds
      late = Thread.new { pss_late(server) } if @scenario.peers
      sample = @scenario.load.run(url, setting)
      sleep SETTLE_SECONDS
      cpu = server.tree.cpu_seconds - before
      raise Failure, "no request of the load got a response (#{sample.errors} errors)" if sample.requests.zero?

      Result.new(sample: sample, cpu_ms: cpu * 1000 / sample.requests, pss: [server.tree.pss_mib, *late&.value].max, pss_start: pss_start)
    ensure
      late&.kill
    end

    # Sampled with all connections open: memory that a server frees when clients disconnect counts, too.
    def pss_late(server)
      sleep LATE * @options.seconds
      server.tree.pss_mib
    end

    # True when the app sent the one correct body; a wrong one is a Failure, not a reason to wait.
    def check(port)
      response = Net::HTTP.start("127.0.0.1", port, read_timeout: 10) { |http| http.request(request) }
      return true if response.code == "200" && response.body.bytesize == @scenario.bytes &&
                     Digest::SHA256.hexdigest(response.body) == @scenario.sha256

      raise Failure, "wrong response: status #{response.code}, #{response.body.bytesize} bytes, SHA-256 " \
                     "#{Digest::SHA256.hexdigest(response.body)}; expected 200, #{@scenario.bytes} bytes, #{@scenario.sha256}"
    rescue Net::ReadTimeout, Net::HTTPBadResponse => e
      raise Failure, "no correct response: #{e.class}: #{e.message}"
    end

    def request
      plain = { "Accept-Encoding" => "identity" }
      return Net::HTTP::Get.new(@scenario.path, plain) if @scenario.upload.zero?

      Net::HTTP::Post.new(@scenario.path, plain.merge("Content-Type" => "application/octet-stream")).tap do |post|
        post.body = "x" * @scenario.upload
      end
    end
  end
end
