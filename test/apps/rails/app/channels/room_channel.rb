# frozen_string_literal: true

# Sends to all what one says, and back to one what it whispers.
class RoomChannel < ApplicationCable::Channel
  def subscribed
    stream_from "room"
    transmit({ subscribed: Process.pid })
  end

  def say(data)
    ActionCable.server.broadcast("room", { said: data["text"], by: Process.pid })
  end

  def whisper(data)
    transmit({ whispered: data["text"], by: Process.pid })
  end
end
