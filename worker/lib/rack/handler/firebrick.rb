# frozen_string_literal: true

require "rack/handler"
require "firebrick/handler"

module Rack
  module Handler # :nodoc:
    # Found by `rackup -s firebrick` of Rack 2.
    module Firebrick
      extend ::Firebrick::Handler
    end

    register :firebrick, Firebrick
  end
end
