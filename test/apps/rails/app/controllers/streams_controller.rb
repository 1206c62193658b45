# frozen_string_literal: true

# Responses in pieces. Each piece waits until the test has made a file for it.
class StreamsController < ApplicationController
  include ActionController::Live

  def events
    response.headers["Content-Type"] = "text/event-stream"
    # Otherwise Rack::ETag would read all of it first.
    response.headers["Last-Modified"] = Time.now.httpdate
    events = ActionController::Live::SSE.new(response.stream, event: "step")
    3.times do |i|
      Gate.wait("event#{i}-#{params[:name]}")
      events.write({ step: i }, id: i)
    end
  ensure
    events&.close
  end

  # Writes until the client disconnects.
  def endless
    response.headers["Content-Type"] = "text/event-stream"
    response.headers["Last-Modified"] = Time.now.httpdate
    begin
      loop do
        response.stream.write("data: more\n\n")
        sleep 0.02
      end
    rescue ActionController::Live::ClientDisconnected
      Gate.open("left-#{params[:name]}")
    ensure
      response.stream.close
      Gate.open("closed-#{params[:name]}")
    end
  end
end
