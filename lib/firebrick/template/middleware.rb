# frozen_string_literal: true

require "firebrick/public_files/inner"

module Firebrick
  class Template
    # The middleware that an app was built with, and the apps inside it: what `use`, `map` and Rack::Cascade have put
    # there, and in Rails the stacks of engines and what is mounted in the routes.
    #
    # Contract: the app is only looked at. What a block makes when it is called is not seen.
    class Middleware
      Inner = PublicFiles::Inner

      # An app with more parts is not looked at to its end.
      MOST = 3_000
      ROUTES = "ActionDispatch::Routing::RouteSet"

      def initialize(app)
        @app = app
      end

      # Whether there is one of a class with this name, or of one derived from it.
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

      # Names of its class and those above; of an app that is a class itself, its own.
      def kinds(part)
        kind = part.is_a?(Module) ? part : part.class
        kind.ancestors.map { |one| Module.instance_method(:name).bind_call(one) }
      end

      def inner(part)
        case Inner.name(part)
        when "Rack::URLMap" then Array(Inner.variable(part, :@mapping)).map { |mount| mount[3] }
        when "Rack::Cascade" then Inner.cascade(part)
        when ROUTES then mounted(part)
        else [*callable(part), Inner.of(part)]
        end.compact
      rescue StandardError
        # It objects to being looked at.
        []
      end

      # Whatever can be called, of those that are no class or block.
      def callable(part)
        return [] if part.is_a?(Module) || part.is_a?(Proc) || part.is_a?(Method)

        names = Kernel.instance_method(:instance_variables).bind_call(part)
        names.map { |name| Inner.variable(part, name) }.select { |one| Inner.app?(one) }
      end

      # What is behind routes: apps inside constraints.
      def mounted(routes)
        routes.routes.filter_map do |route|
          endpoint = route.app
          endpoint = endpoint.app while endpoint.respond_to?(:app) && !Inner.rails?(endpoint)
          endpoint
        end
      end
    end
  end
end
