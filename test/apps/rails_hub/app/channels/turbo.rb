# frozen_string_literal: true

# Stands for turbo-rails: its channel must not be asked when the front can check the signature.
module Turbo
  class StreamsChannel < ActionCable::Channel::Base
    def subscribed
      raise "the app was asked"
    end
  end
end
