# frozen_string_literal: true

# Lets its clients whisper in a room, and about a record.
class WhisperChannel < ApplicationCable::Channel
  def subscribed
    stream_from "room:#{params[:room]}", whisper: true
  end

  def enter
    stream_for Entry.first || Entry.create!(text: "one"), whisper: true
    transmit({ entered: true })
  end
end
