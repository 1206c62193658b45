# frozen_string_literal: true

# Tells of the ends of others.
class EndsChannel < ApplicationCable::Channel
  def subscribed
    stream_from "ends"
  end
end
