# frozen_string_literal: true

module ApplicationCable
  # Knows its user by a signed cookie, and counts what it is asked.
  class Connection < ActionCable::Connection::Base
    identified_by :user, :entry

    def connect
      self.user = cookies.signed[:user] || request.params[:user] || reject_unauthorized_connection
      self.entry = Entry.find_by(text: user)
      @greeting = "hello #{user}"
    end

    def disconnect
      ActionCable.server.broadcast("ends", { left: user })
    end

    attr_reader :greeting

    # The parts of the handshake that a channel can see.
    def seen
      { cookie: cookies[:plain], agent: request.user_agent, method: request.request_method, session: request.session[:greeting] }
    end
  end
end
