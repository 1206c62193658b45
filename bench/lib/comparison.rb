# frozen_string_literal: true

require "digest"
require "net/http"
require_relative "loads"
require_relative "redis_server"
require_relative "server"

module Bench
  # One figure set of one server in one round. CPU in milliseconds per request, PSS in MiB.
  Result = Struct.new(:sample, :cpu_ms, :pss, :killed, keyword_init: true) do
    def rate = sample.seconds&.positive? ? sample.requests / sample.seconds : nil
  end

  # Measures one scenario: every server in turn, round after round (A B A B …), each from a fresh start.
  class Comparison
    SERVER_CPU = 0
    LOAD_CPU = 1
    # Work that a server put off until after its last answer is its work too.
    SETTLE_SECONDS = 0.1

    def initialize(scenario, options, dir)
      @scenario = scenario
      @options = options
      @dir = dir
      @pinned = options.pin && scenario.pinned
      @app = File.expand_path("../apps/#{scenario.app}", __dir__)
    end

    def shape = @options.shape || @scenario.shape

    # { server name => [Result or Failure per round] }; the block is told the name before each.
    def run
      redis = RedisServer.new(@dir, cpu: (LOAD_CPU if @pinned)) if @scenario.redis
      env = redis ? { "REDIS_URL" => redis.url } : {}
      results = @options.servers.transform_values { [] }
      @options.rounds.times do |round|
        @options.servers.each do |name, template|
          yield name, round + 1
          results[name] << attempt(name, template, env)
        end
      end
      results
    ensure
      redis&.stop
    end

    private

    def attempt(name, template, env)
      server = Server.new(template, log: File.join(@dir, "#{name}.log"), cpu: (SERVER_CPU if @pinned), env: env)
      result = measure(server)
      result.killed = server.stop
      result
    rescue Failure => e
      e
    ensure
      server&.stop
    end

    def measure(server)
      server.start(@app, shape) { |port| check(port) }
      url = "http://127.0.0.1:#{server.port}/"
      setting = Loads::Setting.new(seconds: @options.seconds, cpu: (LOAD_CPU if @pinned), dir: @dir)
      @scenario.load.warm_up(url, setting)
      before = server.tree.cpu_seconds
      sample = @scenario.load.run(url, setting)
      sleep SETTLE_SECONDS
      cpu = server.tree.cpu_seconds - before
      raise Failure, "no request of the load was answered (#{sample.errors} errors)" if sample.requests.zero?

      Result.new(sample: sample, cpu_ms: cpu * 1000 / sample.requests, pss: server.tree.pss_mib)
    end

    # True when the app gave the one correct answer; a wrong one is a Failure, not a reason to wait.
    def check(port)
      response = Net::HTTP.start("127.0.0.1", port, read_timeout: 10) { |http| http.request(request) }
      return true if response.code == "200" && response.body.bytesize == @scenario.bytes &&
                     Digest::SHA256.hexdigest(response.body) == @scenario.sha256

      raise Failure, "wrong answer: status #{response.code}, #{response.body.bytesize} bytes, SHA-256 " \
                     "#{Digest::SHA256.hexdigest(response.body)}; expected 200, #{@scenario.bytes} bytes, #{@scenario.sha256}"
    rescue Net::ReadTimeout, Net::HTTPBadResponse => e
      raise Failure, "no correct answer: #{e.class}: #{e.message}"
    end

    def request
      plain = { "Accept-Encoding" => "identity" }
      return Net::HTTP::Get.new("/", plain) if @scenario.upload.zero?

      Net::HTTP::Post.new("/", plain.merge("Content-Type" => "application/octet-stream")).tap do |post|
        post.body = "x" * @scenario.upload
      end
    end
  end
end
