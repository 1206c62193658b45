# frozen_string_literal: true

# Sets cookies and a session, broadcasts, and ends connections.
class HubController < ApplicationController
  skip_forgery_protection

  def sign_in
    cookies.signed[:user] = params[:user]
    cookies[:plain] = "crumbs"
    session[:greeting] = "from the session"
    head :no_content
  end

  def publish
    ActionCable.server.broadcast(params[:stream], { said: params[:text] })
    head :no_content
  end

  def publish_entry
    entry = Entry.find_or_create_by!(text: params[:text])
    LiveChannel.broadcast_to(entry, { about: entry.id })
    head :no_content
  end

  def disconnect
    ActionCable.server.remote_connections.where(user: params[:user], entry: nil).disconnect
    head :no_content
  end
end
