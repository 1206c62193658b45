# frozen_string_literal: true

require "firebrick/public_files/inner"

module Firebrick
  class Template
    # The middleware with which an app was built, and the apps inside it: those of `use`, `map` and Rack::Cascade, and
    # in Rails the stacks of engines and the apps mounted in the routes.
    #
    # Contract: the app is only inspected. Objects that a block makes when called are not seen.
    class Middleware
      Inner = PublicFiles::Inner

      # The number of parts at which the search stops.
      MOST = 3_000
      ROUTES = "ActionDispatch::Routing::RouteSet"

      def initialize(app)
        @app = app
      end

      # Returns whether there is one of a class with this name, or of a subclass.
      def uses?(name)
        parts.any? { |part| kinds(part).include?(name) }
      end

      private

      def parts
        @parts ||= find
      end

      def find
        seen = {}.compare_by_identity
        waiting = [@app]
        while (part = waiting.shift) && seen.size < MOST
          next if seen[part]

          seen[part] = true
          waiting.concat(inner(part))
        end
        seen.keys
      end

      # Returns the names of its class and superclasses; for an app that is a class itself, its own.
      def kinds(part)
        kind = part.is_a?(Module) ? part : part.class
        kind.ancestors.map { |one| Module.instance_method(:name).bind(one).call }
      end

      def inner(part)
        case Inner.name(part)
        when "Rack::URLMap" then Array(Inner.variable(part, :@mapping)).map { |mount| mount[3] }
        when "Rack::Cascade" then Inner.cascade(part)
        when ROUTES then mounted(part)
        else [*callable(part), Inner.of(part)]
        end.compact
      rescue StandardError
        # The object cannot be inspected.
        []
      end

      # Returns all callable values of instance variables, except in classes and blocks.
      def callable(part)
        return [] if part.is_a?(Module) || part.is_a?(Proc) || part.is_a?(Method)

        names = Kernel.instance_method(:instance_variables).bind(part).call
        names.map { |name| Inner.variable(part, name) }.select { |one| Inner.app?(one) }
      end

      # Returns the apps behind routes, including those inside constraints.
      def mounted(routes)
        routes.routes.map { |route| innermost(route.app) }.compact
      end

      def innermost(endpoint)
        while endpoint.respond_to?(:app) && !Inner.rails?(endpoint)
          inner = endpoint.app
          # Rails' dispatcher of controllers is its own app.
          break if inner.equal?(endpoint)

          endpoint = inner
        end
        endpoint
      end
    end
  end
end
