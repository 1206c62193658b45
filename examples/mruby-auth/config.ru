# frozen_string_literal: true

require "sinatra/base"

# An app that leaves authentication to the handler in front of it.
class Members < Sinatra::Base
  set :show_exceptions, false

  get("/") { "Hello, #{request.env.fetch('REMOTE_USER')}\n" }
  get("/up") { "up\n" }
end

run Members
