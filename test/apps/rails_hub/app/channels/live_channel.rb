# frozen_string_literal: true

# Uses what channels have: parameters, streams, variables, rejections, transmissions, callbacks.
class LiveChannel < ApplicationCable::Channel
  after_subscribe { @subscribed_in = Process.pid }

  def subscribed
    return reject if params[:room] == "secret"
    return raise(ArgumentError, "an error of the channel") if params[:room] == "broken"

    @count = 0
    stream_from "room:#{params[:room]}"
    stream_for entry if entry
    transmit({ welcome: connection.greeting })
  end

  def unsubscribed
    ActionCable.server.broadcast("ends", { unsubscribed: params[:room], count: @count })
  end

  def count
    @count += 1
    transmit({ count: @count, pid: Process.pid, first: @subscribed_in, user: user, entry: entry&.text })
  end

  def say(data)
    ActionCable.server.broadcast("room:#{params[:room]}", { said: data["text"] })
  end

  def say_to_others(data)
    Firebrick::Hub.publish("room:#{params[:room]}", { said: data["text"] }, except: Firebrick::Hub.session)
  end

  def move(data)
    stop_stream_from "room:#{params[:room]}"
    stream_from "room:#{data['room']}"
  end

  def stop
    stop_all_streams
  end

  def enter(data)
    join_presence(*data["stream"], id: data["id"], info: data["info"] || { "name" => user })
  end

  def go(data)
    leave_presence(data["id"])
  end

  def show
    transmit(connection.seen)
  end

  def fail
    raise ArgumentError, "an error of the action"
  end

  def stall
    File.write(Rails.root.join("tmp/stalling"), Process.pid.to_s)
    sleep
  end

  def leave
    connection.close(reason: "enough", reconnect: false)
  end
end
