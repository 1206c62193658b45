# frozen_string_literal: true

# An app that answers AnyCable's RPC over HTTP (test/apps/any_cable), served with the hub on. It starts in a tenth of the time of one with Rails.

require "openssl"
require "support/cable_client"
require "support/upgrading"

module AnyCableApp
  include Upgrading

  SOURCE = File.expand_path("../apps/any_cable/config.ru", __dir__)
  SECRET = "0123456789abcdef" * 4
  ROOM = { channel: "RoomChannel", room: "1" }.freeze

  # The token that AnyCable derives.
  def derived(phrase) = OpenSSL::HMAC.hexdigest("SHA256", SECRET, phrase)

  # settings:: nil takes one away
  # upgradable:: a server that a new program can replace
  def hub(settings: {}, env: {}, files: {}, upgradable: false, **options)
    hub = { path: "/cable", rpc: "/_anycable", broadcast: "/_broadcast", secret: SECRET }
    settings = { hub: hub, reload: { watch: "0s", keep: "0s" } }.merge(settings) { |_, one, other| one.merge(other).compact }
    options = { settings: settings, workers: 2, leaves: %w[calls tmp],
                env: { "RPC_TOKEN" => derived("rpc-cable") }.merge(env), files: { "config.ru" => File.read(SOURCE) }.merge(files), **options }
    upgradable ? launch(app: nil, **options) : start(**options)
  end

  def client(own, user: "ann", **options) = closed_at_end(CableClient.new(own, path: "/cable?user=#{user}", **options))

  # A client that is subscribed.
  def listener(own, channel = ROOM, **options)
    client(own, **options).subscribed(channel)
  end

  # Publishes a message.
  def publish(own, message, stream: "room:1")
    assert_status 201, broadcast(own, { stream: stream, data: JSON.generate(message) })
  end

  # Publishes by HTTP in AnyCable's form.
  def broadcast(own, json, token: derived("broadcast-cable"), method: :post, **headers)
    json = JSON.generate(json) unless json.is_a?(String)
    headers = { "Content-Type" => "application/json", "Authorization" => ("Bearer #{token}" if token) }.merge(headers).compact
    public_send(method, "/_broadcast", json, to: own, headers: headers)
  end
end
