# frozen_string_literal: true

# Changes messages in Ruby, which needs a WebSocket of the app's own.
class BlockChannel < ApplicationCable::Channel
  def subscribed
    stream_from("room:#{params[:room]}", coder: ActiveSupport::JSON) do |message|
      transmit({ heard: message["said"].upcase, by: user, pid: Process.pid })
    end
  end
end
