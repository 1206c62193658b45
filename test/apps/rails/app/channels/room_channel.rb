# frozen_string_literal: true

# Broadcasts what a client says, and returns to the sender what it whispers.
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
