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

  def forget_entry
    Entry.where(text: params[:text]).delete_all
    head :no_content
  end

  def head_of_page
    @known = { user: params[:user], entry: Entry.find_by(text: params[:user]) }
    render inline: "<%= firebrick_cable_meta_tags(**@known) %>"
  end

  def bearer
    identifiers = Firebrick::Hub.connection_identifiers(params[:jid])
    render json: identifiers&.transform_values { |value| value.is_a?(Entry) ? value.text : value }
  end

  def disconnect
    ActionCable.server.remote_connections.where(user: params[:user], entry: nil).disconnect
    head :no_content
  end
end
