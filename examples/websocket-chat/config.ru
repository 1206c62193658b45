# frozen_string_literal: true

require_relative "chat"

room = Room.new
page = File.read(File.join(__dir__, "chat.html"))

run lambda { |env|
  text = { "content-type" => "text/plain" }
  case env["PATH_INFO"]
  when "/" then [200, { "content-type" => "text/html; charset=utf-8" }, [page]]
  when "/chat"
    unless WebSocket::Driver.websocket?(env)
      next [426, text.merge("upgrade" => "websocket"), ["This is a WebSocket endpoint.\n"]]
    end

    Visitor.new(env, room).start
    [-1, {}, []] # ignored: the connection has been taken over
  else [404, text, ["Not found.\n"]]
  end
}
