# frozen_string_literal: true

require "rackup/handler"
require "firebrick/handler"

module Rackup
  module Handler # :nodoc:
    # Found by `rackup -s firebrick` and `rails server -u firebrick`.
    module Firebrick
      extend ::Firebrick::Handler
    end

    register :firebrick, Firebrick
  end
end
