# frozen_string_literal: true

require "firebrick/routes"
require "firebrick/wire"

module Firebrick
  module Pure
    # The names of the app's routes, each with a number for the process: worker/native/src/routes.rs in plain Ruby.
    module RouteNames
      UNPRINTABLE = /[[:cntrl:]]/.freeze

      @sources = 0
      # Never changed, only replaced: other threads read it meanwhile.
      @numbers = {}.freeze
      @lock = Mutex.new

      class << self
        # Finds out which frameworks are loaded.
        def look_for_frameworks
          @sources = Routes.install
        end

        # Returns the number of the route of a request whose app has returned; 0 if it has no name, or there are too
        # many. The app can write any object into the env: what has no name never fails the request.
        def number(env)
          name = name_in(env)
          name ? @numbers[name] || add(name) : 0
        rescue StandardError
          0
        end

        # Returns the name of a number.
        def name(number)
          @numbers.key(number)
        end

        private

        def name_in(env)
          own = env["firebrick.route"]
          return clean(own) if own.is_a?(String)

          found = of_framework(env) if @sources.positive?
          clean(found) if found.is_a?(String)
        end

        def of_framework(env)
          of_grape(env["grape.routing_args"]) || env["sinatra.route"] || of_action(env["hanami.action_instance"]) ||
            of_rails(env)
        end

        def of_grape(args)
          Routes.name(args[:route_info]) if args.is_a?(Hash) && args[:route_info]
        end

        def of_action(action)
          action && Routes.name(action.class)
        end

        def of_rails(env)
          parameters = env["action_dispatch.request.path_parameters"]
          names = parameters.values_at(:controller, :action) if parameters.is_a?(Hash)
          return names.join("#") if names&.all?(String)

          pattern = env["action_dispatch.route_uri_pattern"]
          "#{env['REQUEST_METHOD']} #{pattern}" if pattern.is_a?(String)
        end

        def clean(name)
          name = name.dup.force_encoding(Encoding::UTF_8)
          name.scrub.gsub(UNPRINTABLE, " ").byteslice(0, Wire::Route::LONGEST).scrub("")
        end

        def add(name)
          return 0 if name.empty?

          @lock.synchronize do
            next @numbers[name] if @numbers.key?(name)
            next 0 if @numbers.length >= Wire::Route::MOST

            @numbers = @numbers.merge(name.freeze => @numbers.length + 1).freeze
            @numbers.length
          end
        end
      end
    end
  end
end
