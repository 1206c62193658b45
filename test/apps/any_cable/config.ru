# frozen_string_literal: true

# An app that answers AnyCable's RPC over HTTP, as `rpc.proto` defines it, without the gem. Its one channel is `RoomChannel`. The file `calls` gets a
# line for each call that is not a command.

require "json"
require "firebrick/hub/publisher"

TOKEN = ENV.fetch("RPC_TOKEN")
SUCCESS = 1
FAILURE = 2
ERROR = 0
PUBLISHER = Firebrick::Hub::Publisher.new(Firebrick::Hub::Publisher.path)

# The methods of the service.
class Rpc
  # session:: of the client
  def initialize(message, session)
    @message = message
    @session = session
    @env = message.fetch("env")
    @url = @env.fetch("url")
    @headers = @env.fetch("headers")
  end

  def connect
    user = @url[/user=(\w+)/, 1]
    raise "no database" if user == "broken"
    return { status: FAILURE, transmissions: [JSON.generate(type: "disconnect", reason: "unauthorized", reconnect: false)] } if user == "nobody"

    note("connect #{user} #{@headers['REMOTE_ADDR']} #{@headers['cookie']} #{@headers.keys.grep(/anycable/).inspect}")
    { status: SUCCESS, identifiers: JSON.generate(user: user), transmissions: [JSON.generate(type: "welcome")],
      env: { cstate: { "since" => "0" }, istate: {} } }
  end

  def command
    channel = JSON.parse(@message.fetch("identifier"))
    raise "Channel not found: #{channel['channel']}" unless channel["channel"] == "RoomChannel"

    @room = channel["room"]
    @istate = @env["istate"] || {}
    @reply = { status: SUCCESS, transmissions: [], streams: [], stopped_streams: [], env: { cstate: {}, istate: {} } }
    send(@message.fetch("command"))
    @reply
  end

  def disconnect
    note("disconnect #{user} #{@message['subscriptions'].size} #{@env['cstate']['since']} #{@env['istate'].values.map { |text| JSON.parse(text)['count'] }.inspect}")
    { status: SUCCESS }
  end

  private

  def subscribe
    return @reply[:status] = FAILURE if @room == "secret"

    @reply[:streams] << "room:#{@room}"
    @reply[:env][:istate]["count"] = "0"
    @reply[:transmissions] << confirmation
    let_whisper("room:#{@room}") if @room.start_with?("den")
    @reply[:presence] = { type: "join", id: user, info: JSON.generate(name: user) } if @room == "lobby"
    join_yard if @room == "porch"
  end

  # As the gem does for `join_presence("yard", …)`.
  def join_yard
    @reply[:streams] << "yard"
    @reply[:env][:istate]["$p"] = "yard"
    @reply[:presence] = { type: "join", id: user }
  end

  def unsubscribe
    note("unsubscribe #{user} #{@room}")
    @reply[:stop_streams] = true
  end

  def message
    data = JSON.parse(@message.fetch("data"))
    case data["action"]
    when "count" then count
    when "say" then say(data["text"], data["more"])
    when "say_to_others" then say(data["text"], { meta: { exclude_socket: @session } })
    when "move" then @reply.update(stop_streams: true, streams: ["room:#{data['room']}"])
    when "whisper_to" then let_whisper("room:#{data['room']}")
    when "overhear" then @reply[:streams] << "room:#{data['room']}"
    when "leave" then @reply[:presence] = { type: "leave", id: user }
    when "quit" then @reply[:disconnect] = true
    when "fail" then raise "an action failed"
    end
  end

  def say(text, more)
    PUBLISHER.broadcast(JSON.generate({ stream: "room:#{@room}", data: JSON.generate(said: text) }.merge(more || {})))
  end

  def count
    @reply[:env][:istate]["count"] = (Integer(@istate.fetch("count")) + 1).to_s
    @reply[:env][:cstate]["since"] = (Integer(@env["cstate"].fetch("since")) + 1).to_s
    transmit(count: Integer(@reply[:env][:istate]["count"]), since: @reply[:env][:cstate]["since"], user: user, pid: Process.pid)
  end

  # As the gem does for `stream_from …, whisper: true`.
  def let_whisper(stream) = @reply[:env][:istate]["$w"] = stream

  def user = JSON.parse(@message["connection_identifiers"] || @message["identifiers"]).fetch("user")

  def transmit(message)
    @reply[:transmissions] << JSON.generate(identifier: @message.fetch("identifier"), message: message)
  end

  def confirmation = JSON.generate(type: "confirm_subscription", identifier: @message.fetch("identifier"))

  def note(line) = File.write("calls", "#{line}\n", mode: "a")
end

run(lambda do |env|
  kind = env["PATH_INFO"][%r{\A/_anycable/(connect|command|disconnect)\z}, 1]
  next [404, { "content-type" => "text/plain" }, ["nothing here"]] unless kind
  next [401, { "content-type" => "text/plain" }, ["Unauthorized"]] unless env["HTTP_AUTHORIZATION"] == "Bearer #{TOKEN}"

  begin
    reply = Rpc.new(JSON.parse(env["rack.input"].read), env["HTTP_X_ANYCABLE_META_SID"]).public_send(kind)
  rescue StandardError => e
    reply = { status: ERROR, error_msg: e.message }
  end
  [200, {}, [JSON.generate(reply)]]
end)
