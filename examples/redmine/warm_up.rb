# frozen_string_literal: true

# Makes the pages behind Redmine's login warm after `firebrick reload`, and compares them with --shadow: copy this file
# to config/initializers/.
#
# Requests that Firebrick repeats or copies have no cookies. Redmine serves them as for the user of WARM_UP_LOGIN. No
# client can set these keys of the env, nothing is written to the database, and the responses go nowhere.
Rails.application.config.to_prepare do
  ApplicationController.prepend(Module.new do
    def find_current_user
      return super unless request.env.key?("firebrick.warmup") || request.env.key?("firebrick.shadow")

      User.active.find_by(login: ENV.fetch("WARM_UP_LOGIN", "admin"))
    end
  end)
end
