# frozen_string_literal: true

require_relative "chat"

room = Room.new
no_page = [426, { "content-type" => "text/plain", "upgrade" => "websocket" }, ["This is a WebSocket.\n"]].freeze
page = File.read(File.join(__dir__, "chat.html"))

run lambda { |env|
  case env["PATH_INFO"]
  when "/" then [200, { "content-type" => "text/html; charset=utf-8" }, [page]]
  when "/chat"
    next no_page unless WebSocket::Driver.websocket?(env)

    Visitor.new(env, room).start
    [-1, {}, []] # ignored: the connection has been taken over
  else [404, { "content-type" => "text/plain" }, ["There is no such page.\n"]]
  end
}
