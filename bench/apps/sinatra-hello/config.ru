# frozen_string_literal: true

# The smallest app of a framework.
require "sinatra/base"

# Says hello.
class Hello < Sinatra::Base
  set :environment, :production
  disable :protection

  get "/" do
    content_type "text/plain"
    "Hello, World!"
  end
end

run Hello
