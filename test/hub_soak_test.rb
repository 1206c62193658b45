# frozen_string_literal: true

# Many messages to clients of the hub, over everything that can come between: each client gets each message once, and in order.
#
#   SOAK=1000000 NETWORK_DOWN=20 test/run hub_soak      a million deliveries, and the network is away for 20 s

require "json"
require "support/cable_client"
require "support/event_client"
require "support/hub_app"
require "support/relay"
require "support/tls_case"
require_relative "../worker/lib/firebrick/hub/publisher"

class HubSoakTest < TlsCase
  parallel!(slow: 60)

  include HubApp

  ROOM = { channel: "LiveChannel", room: "1" }.freeze
  STREAM = "room:1"
  # Half of the clients listen to Action Cable, the others to events.
  CLIENTS = 20
  DELIVERIES = Integer(ENV.fetch("SOAK", 20_000))
  DOWN = Float(ENV.fetch("NETWORK_DOWN", 2))
  # Seconds between two messages.
  EVERY = 0.002
  LIMITS = { history_messages: 1_000_000, history_memory: "512MiB", client_queue: "64MiB" }.freeze
  PATH = "/cable/events?stream=#{HubApp.signed(STREAM)}".freeze
  LOST = [SystemCallError, IOError, Minitest::Assertion].freeze

  # A client that connects again whenever it is cut, and resumes where it was.
  class Listener
    attr_reader :last, :mistakes

    def initialize(relay, number)
      @relay = relay
      @number = number
      @last = 0
      @mistakes = []
      @thread = Thread.new { listen until @stopping }
    end

    def connected? = @connected

    def stop
      @stopping = true
      @thread.join
    end

    private

    def listen
      client = connect
      @connected = true
      until @stopping || ended?(client)
        client.listen(0.2)
        take(client)
      end
    rescue *LOST
      # Messages before the cut count.
      take(client) if client
      sleep 0.1
    ensure
      client&.close
    end

    def got(text)
      number = Integer(text)
      @mistakes << "#{self.class} #{@number}: #{number} after #{@last}" unless number == @last + 1
      @last = number
    end
  end

  # Over a WebSocket, with the messages that it has missed.
  class CableListener < Listener
    private

    def connect
      client = CableClient.new(@relay, path: "/cable?user=u#{@number}", protocol: CableClient::EXTENDED)
      client.wait_for(type: "welcome")
      client.subscribe(ROOM, **(@position ? { history: { streams: { STREAM => @position } } } : {}))
      client.wait_for(type: "confirm_subscription")
      client
    end

    def ended?(client) = client.closed

    def take(client)
      client.messages.each do |message|
        @mistakes << message.to_s if message["type"] == "reject_history"
        next unless message.key?("offset")

        got(message["message"])
        @position = message.slice("epoch", "offset")
      end
      client.messages.clear
    end
  end

  # Over Server-Sent Events.
  class EventListener < Listener
    private

    def connect
      client = EventClient.new(@relay, PATH, fields: @id ? { "Last-Event-ID" => @id } : {})
      raise Minitest::Assertion, "status #{client.status}" unless client.status == 200

      client.wait { client.last_id }
      client
    end

    def ended?(client) = client.ended?

    def take(client)
      client.events.each do |event|
        event.type == "message" ? got(event.data) : @mistakes << event.to_s
      end
      # An id counts once its event is complete.
      @id = client.events.last&.id || @id || client.last_id
      client.events.clear
    end
  end

  # Publishes until there are enough deliveries and `@over`.
  def publish(own)
    publisher = Firebrick::Hub::Publisher.new(own.path("tmp/firebrick-hub.sock"))
    until @over && @published * CLIENTS >= DELIVERIES
      @published += 1
      publisher.publish(STREAM, JSON.generate(@published.to_s))
      sleep EVERY
    end
  ensure
    publisher&.close
  end

  def disturb(own, relay)
    assert_reloads(own)
    workers_of(own).each do |pid|
      Process.kill("KILL", pid)
      assert wait_until(within: 20) { !workers_of(own).include?(pid) && own.stats["workers"].count { |worker| worker["state"] == "ready" } == 2 }
    end
    relay.cut
    assert_upgrades(own)
    relay.cut(down: true)
    sleep DOWN
    relay.up
  end

  it "brings each message once and in order to each client" do
    own = hub(upgradable: true, settings: { hub: LIMITS }, env: { "FIREBRICK_HUB_SECRET" => SECRET })
    relay = Relay.new(own.address)
    listeners = Array.new(CLIENTS) { |number| number.even? ? CableListener.new(relay, number) : EventListener.new(relay, number) }
    assert wait_until(within: 20) { listeners.all?(&:connected?) }, own.report
    @published = 0
    publishing = Thread.new { publish(own) }
    disturb(own, relay)
    disturb(own, relay) while @published * CLIENTS < DELIVERIES
    @over = true
    publishing.join
    wait_until(within: 60) { listeners.all? { |listener| listener.last >= @published } }
    assert_empty listeners.flat_map(&:mistakes).first(10)
    assert_equal [@published], listeners.map(&:last).uniq
  ensure
    @over = true
    listeners&.each(&:stop)
    relay&.close
  end
end
