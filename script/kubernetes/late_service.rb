# frozen_string_literal: true

require "socket"
require_relative "pod"

module Kubernetes
  # A Service as clients of a busy cluster see it: connections go to a random pod of those that it knows, and it learns of each change up to
  # LATE seconds after the API server has said it.
  class LateService
    LATE = 5.0
    EVERY = 0.25

    attr_reader :failure

    def initialize(api, namespace, name, port: 9292, late: LATE)
      @api = api
      @path = "/apis/discovery.k8s.io/v1/namespaces/#{namespace}/endpointslices?labelSelector=kubernetes.io/service-name=#{name}"
      @port = port
      @late = late
      @known = []
      @pending = {}
    end

    def start
      @known = ready
      @thread = Thread.new { run }
      self
    end

    def stop
      @stopping = true
      @thread&.join
      @server&.close
      @acceptor&.join
    end

    # A connection to a pod. Raises what the pod's machine would answer.
    def connect
      address = @known.sample or raise Errno::ECONNREFUSED, "the service knows no pod"
      TCPSocket.new(address, @port).tap { |socket| socket.setsockopt(Socket::IPPROTO_TCP, Socket::TCP_NODELAY, 1) }
    end

    # A port of 127.0.0.1 that passes each connection on, for clients that know nothing of this.
    def listen
      @server = TCPServer.new("127.0.0.1", 0)
      @acceptor = Thread.new do
        loop { pass_on(@server.accept) }
      rescue IOError
        nil
      end
      @server.addr[1]
    end

    private

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    def ready
      slices = @api.get(@path).fetch("items")
      endpoints = slices.flat_map { |slice| slice["endpoints"] || [] }
      endpoints.select { |one| one.dig("conditions", "ready") }.flat_map { |one| one["addresses"] }.map { |address| Pod.loopback(address) }.uniq
    end

    def run
      until @stopping
        learn(ready)
        sleep EVERY
      end
    rescue StandardError => e
      @failure = e
    end

    # Each change has its own delay.
    def learn(wanted)
      ((wanted - @known) + (@known - wanted)).each { |address| @pending[address] ||= now + Random.rand(@late) }
      @pending.keep_if { |address, _| wanted.include?(address) ^ @known.include?(address) }
      due = @pending.select { |_, at| at <= now }.keys
      @known = (@known | (due & wanted)) - (due - wanted)
    end

    def pass_on(client)
      Thread.new do
        pod = connect
        upward = Thread.new { copy(client, pod) }
        copy(pod, client)
        upward.join
      rescue SystemCallError
        nil # The client sees that its connection ends.
      ensure
        [client, pod].compact.each(&:close)
      end
    end

    def copy(from, to)
      IO.copy_stream(from, to)
      to.close_write
    rescue SystemCallError, IOError
      nil
    end
  end
end
