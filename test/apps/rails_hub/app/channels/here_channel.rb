# frozen_string_literal: true

# Its clients are members from the beginning, with the defaults of the channel.
class HereChannel < ApplicationCable::Channel
  def subscribed
    stream_from "here:#{params[:room]}"
    join_presence
  end

  def quit
    leave_presence
  end

  # Says what Ruby sees.
  def ask
    transmit({ members: Firebrick::Hub.presence("here:#{params[:room]}") })
  end

  private

  def user_presence_id = user

  def user_presence_info = { name: user.upcase }
end
