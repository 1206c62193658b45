# frozen_string_literal: true

require "socket"

module Kubernetes
  # A Service as clients of a busy cluster see it: connections go to a random known pod, and each change becomes known up to
  # LATE seconds after the API server has reported it, in order.
  class LateService
    LATE = 5.0
    EVERY = 0.25

    attr_reader :failure

    # reach: converts a pod's address to the one on which its server listens.
    def initialize(api, namespace, name, reach:, port: 9292, late: LATE)
      @api = api
      @path = "/apis/discovery.k8s.io/v1/namespaces/#{namespace}/endpointslices?labelSelector=kubernetes.io/service-name=#{name}"
      @port = port
      @late = late
      @reach = reach
      @known = []
      @changes = []
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

    # Opens a connection to a pod. Raises the errors of the pod's machine.
    def connect
      address = @known.sample or raise Errno::ECONNREFUSED, "the service knows no pod"
      TCPSocket.new(address, @port).tap { |socket| socket.setsockopt(Socket::IPPROTO_TCP, Socket::TCP_NODELAY, 1) }
    end

    # Opens a port of 127.0.0.1 that forwards each connection, for ordinary clients.
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
      endpoints.select { |one| one.dig("conditions", "ready") }.flat_map { |one| one["addresses"] }.map(&@reach).uniq
    end

    def run
      seen = @known
      until @stopping
        wanted = ready
        @changes << [due, seen = wanted] if wanted.sort != seen.sort
        @known = @changes.shift.last while @changes.any? && @changes.first.first <= now
        sleep EVERY
      end
    rescue StandardError => e
      @failure = e
    end

    # Returns when the next change becomes known. The polling interval is part of the delay.
    def due = [now + Random.rand([@late - EVERY, 0.001].max), *@changes.last&.first].max

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
