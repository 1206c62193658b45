# frozen_string_literal: true

# Does something periodically.
class ClockChannel < ApplicationCable::Channel
  periodically :tick, every: 0.2
  periodically(every: 0.3) { transmit({ block: params[:room], user: user }) }

  def subscribed
    @ticks = 0
  end

  def set(data)
    @ticks = data["ticks"]
  end

  private

  def tick
    @ticks += 1
    stream_from "clock" if @ticks == 2
    raise ArgumentError, "an error of the timer" if @ticks == 1_000

    sleep 1 if params[:room] == "slow"
    transmit({ ticks: @ticks, pid: Process.pid })
  end
end
