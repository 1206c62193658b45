# frozen_string_literal: true

require "firebrick/version"
require "firebrick/hooks"
require "firebrick/errors"
require "firebrick/unsliced"

# Firebrick, a web server for Ruby apps.
#
# The methods for an app's `config.ru` or initializer:
#
#   Firebrick.before_fork        { Database.disconnect }
#   Firebrick.after_fork         { |index| Database.connect }
#   Firebrick.before_worker_exit { |index| Metrics.flush }
#   Firebrick.service("metrics") { |service| Metrics.push until service.wait(10) }
#   Firebrick.on_error           { |error, env| [500, { "content-type" => "text/plain" }, ["Sorry\n"]] }
#   Firebrick.unsliced           { Counter.increment_without_lock }
#   Firebrick::Hub.publish("prices", { gold: 3_412.5 })
module Firebrick
  autoload :Server, "firebrick/server"
  autoload :Hub, "firebrick/hub"
end

# A template loads its app by itself, and needs no default handler.
unless defined?(Firebrick::Template)
  require "firebrick/default_handler"
  Firebrick::DefaultHandler.install
end

# In tests the app gets its own server.
require "firebrick/capybara" if defined?(Capybara.register_server)
