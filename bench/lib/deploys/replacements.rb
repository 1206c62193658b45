# frozen_string_literal: true

require_relative "clients"
require_relative "servers"

module Bench
  module Deploys
    # Instances behind a service, as in Kubernetes: they are replaced one after another, and the service learns of it up to 5 s late. Until
    # then it sends connections to an instance that has got TERM.
    class Replacements
      # The longest delay, in seconds, until the service learns of a change.
      LATE = 5.0
      CLIENTS = 20
      INSTANCES = 2

      # Firebrick as it behaves in Kubernetes.
      class Instance < Firebrick
        NAME = "Firebrick"

        private

        def command = [{ "KUBERNETES_SERVICE_HOST" => "127.0.0.1" }, *super]
      end

      # Puma by default, without a `sleep` before its TERM.
      class PumaInstance < PumaPhased
        NAME = "Puma"
      end

      # The instances that get new connections. Existing connections stay.
      class Service
        def initialize
          @ports = []
          @lock = Mutex.new
        end

        def port = @lock.synchronize { @ports.sample }

        def add(port) = @lock.synchronize { @ports += [port] }

        def remove(port) = @lock.synchronize { @ports -= [port] }
      end

      # Requests at a steady pace over kept connections, which the server may close between two requests.
      class Visitor < Client
        REQUESTS = 50

        def initialize(service, every)
          super(nil, pause: 0)
          @service = service
          @every = every
        end

        private

        def exchange
          @port = @service.port
          connected do |socket|
            REQUESTS.times do
              # A close between two requests is not a failure.
              break if @stopped || socket.wait_readable(0)

              socket.write("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
              head = socket.gets("\r\n\r\n").to_s
              expect("200", head[%r{\AHTTP/1.1 (\d+)}, 1], "the status")
              expect("Hello", socket.read(head[/^content-length: (\d+)/i, 1].to_i), "the body")
              @completed += 1
              break if head.match?(/^connection: close/i)

              sleep Random.rand(@every * 2)
            end
          end
          @completed -= 1 # Counted by request here, not by connection.
        end
      end

      def initialize(rounds:, rate:, peers:)
        @rounds = rounds
        @rate = rate
        @kinds = [Instance, *([PumaInstance] if peers)]
      end

      # Returns whether Firebrick had no failure.
      def run
        @kinds.map { |kind| measure(kind) }.first
      end

      private

      def measure(kind)
        instances = []
        service = Service.new
        INSTANCES.times { enter(kind, instances, service) }
        visitors = Array.new(CLIENTS) { Visitor.new(service, CLIENTS / @rate.to_f).start }
        @rounds.times { replace(kind, instances, service) }
        visitors.each(&:stop)
        wrong = visitors.map(&:wrong).reduce { |all, one| all.merge(one) { |_, a, b| a + b } }
        puts "#{kind::NAME}: #{@rounds} replacements, #{visitors.sum(&:completed)} requests, #{wrong.values.sum} failed"
        wrong.each { |what, n| puts "  #{n} x #{what}" }
        wrong.empty?
      ensure
        instances.each(&:stop)
      end

      def enter(kind, instances, service)
        instances << (one = kind.new(workers: 1, threads: 5).start)
        service.add(one.port)
      end

      # The new instance serves before the old one gets TERM, as with `maxSurge: 1`.
      def replace(kind, instances, service)
        enter(kind, instances, service)
        old = instances.shift
        late = Thread.new { sleep Random.rand(LATE) and service.remove(old.port) }
        old.stop
        late.join
      end
    end
  end
end
