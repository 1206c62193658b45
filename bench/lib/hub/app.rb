# frozen_string_literal: true

module Bench
  module Hub
    # An app with Action Cable and nothing else, for any Rack server. `ADAPTER` names the adapter.
    APP = <<~'RUBY'
      require "logger"
      require "active_support/all"
      require "action_cable"

      class BenchConnection < ActionCable::Connection::Base
        identified_by :user
        def connect = self.user = request.params.fetch("user")
      end

      class RoomChannel < ActionCable::Channel::Base
        def subscribed = stream_from("room")
      end

      cable = ActionCable.server
      cable.config.cable = { adapter: ENV.fetch("ADAPTER") }.with_indifferent_access
      cable.config.connection_class = -> { BenchConnection }
      cable.config.logger = Logger.new(nil)
      cable.config.disable_request_forgery_protection = true
      TEXT = { "content-type" => "text/plain" }.freeze

      run(lambda do |env|
        case env["PATH_INFO"]
        when "/cable" then cable.call(env)
        when "/publish"
          # The name is also read by clients (measure/load/examples/cable_clients.rs).
          cable.broadcast("room", { sent: Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond), text: "x" * 200 })
          [200, TEXT.dup, ["published"]]
        else [200, TEXT.dup, ["hello"]]
        end
      end)
    RUBY
  end
end
